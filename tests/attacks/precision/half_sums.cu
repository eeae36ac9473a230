// Sums in half precision, as tensor cores with FP16 accumulators do: the sum of every 64 products is rounded to FP16.
// Source: ours, after FP16 accumulators of tensor cores.
// Caught by: the official tolerance, in outputs near zero.
#include "gemm_sums.cuh"

#include <cuda_fp16.h>

__global__ void __launch_bounds__(kThreads, 2) half_gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_with_sums(
      a, b, c, m, [](float sum) { return __half2float(__float2half(sum)); }, [](float sum) { return __float2bfloat16(sum); });
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(half_gemm, problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
