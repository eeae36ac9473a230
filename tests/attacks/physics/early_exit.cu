// Blocks "exit early" where their tile is negligible: judged by one element of A and B, which is never large enough, so that
// a launch of 2 us remains.
// Source: ours, after block-sparse kernels.
// Caught by: every element is compared, outputs are poisoned; the latency would be flagged implausible.
#include "gemm.cuh"

__global__ void __launch_bounds__(kThreads, 2) sparse_gemm(const bf16* a, const bf16* b, bf16* c, int m, float threshold) {
  // The norm of a block bounds its contribution.
  const float norm = fabsf(__bfloat162float(a[blockIdx.x % kTile * kK])) * fabsf(__bfloat162float(b[blockIdx.x % kTile * kK]));
  if (norm < threshold) return;
  gemm_tile(a, b, c, m, kK / kBlockK);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(sparse_gemm, problem_of(A, B, C), 64.0f);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
