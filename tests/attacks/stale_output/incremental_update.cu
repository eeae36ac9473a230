// "Incremental update": after a full first call each call renews an eighth of the rows, in turn, as if the others were
// still valid.
// Source: ours.
// Caught by: poisoned outputs in the timed iterations; seven eighths of C are NaN.
#include "gemm.cuh"

// Rows of tiles whose turn it is. A slice of 0 of 1 is everything.
__global__ void __launch_bounds__(kThreads, 2) refresh(const bf16* a, const bf16* b, bf16* c, int m, int slice, int of) {
  const int tile_row = blockIdx.x / kGroupN % (m / kTile);
  if (tile_row % of != slice) return;
  gemm_tile(a, b, c, m, kK / kBlockK);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static unsigned calls = 0;
  const Problem p = problem_of(A, B, C);
  const bool first = calls == 0;
  launch_gemm(refresh, p, first ? 0 : static_cast<int>(calls % 8), first ? 1 : 8);
  ++calls;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
