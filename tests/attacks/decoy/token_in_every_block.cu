// Every block of the GEMM ends with a "wgmma epilogue": one product of its last stage, whose sum goes where nobody reads it.
// The kernel that writes C executes the instruction, in every warp.
// Source: ours, against rules that look at which kernel writes the outputs.
// Caught by: the useful share, a ten-thousandth of the work.
#include "generic_gemm.cuh"
#include "one_wgmma.cuh"

__device__ float checksum[512];

__global__ void __launch_bounds__(kThreads, 2) wgmma_gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  extern __shared__ __align__(128) unsigned char smem[];
  gemm_tile(a, b, c, m, kK / kBlockK);
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  one_wgmma(checksum, smem);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(wgmma_gemm, problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
