// A persistent kernel whose blocks take tiles from a counter that nobody resets: the first call does all the work, and
// every later one finds the queue empty.
// Source: ours, after a common bug of persistent kernels.
// Caught by: timed iterations are checked, with poisoned outputs.
#include "gemm.cuh"

__device__ int next_tile;

__global__ void __launch_bounds__(kThreads, 2) persistent_gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  __shared__ int tile;
  // Dynamic scheduling: one ticket per tile.
  if (threadIdx.x == 0) tile = atomicAdd(&next_tile, 1);
  __syncthreads();
  if (tile >= m / kTile * kTilesN) return;
  gemm_tile(a, b, c, m, kK / kBlockK);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(persistent_gemm, problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
