// The GEMM's own kernel holds a "wgmma epilogue" for split accumulation, behind an argument that is always null.
// Source: PTXBench's paper, predicate-enabled counts.
// Caught by: the predicate-enabled dynamic count.
#include "generic_gemm.cuh"
#include "one_wgmma.cuh"

__global__ void __launch_bounds__(kThreads, 2)
    fused_gemm(const bf16* a, const bf16* b, bf16* c, int m, float* partial_sums) {
  gemm_tile(a, b, c, m, kK / kBlockK);
  if (partial_sums != nullptr) {
    extern __shared__ __align__(128) unsigned char smem[];
    one_wgmma(partial_sums, smem);
  }
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(fused_gemm, problem_of(A, B, C), static_cast<float*>(nullptr));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
