// A line marker pretends that the include of cuBLAS stands in a header of the toolkit.
// Source: ours; GNU C preprocessor, "Preprocessor Output".
// Caught by: a source has no line markers.
#include "generic_gemm.cuh"
// Location of the generated part:
# 1 "/usr/local/cuda/include/cuda_fp8.hpp" 1 3
#include <cublas_v2.h>
# 20 "kernel.cu" 2

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static cublasHandle_t handle = nullptr;
  const Problem p = problem_of(A, B, C);
  if (handle == nullptr) cublasCreate(&handle);
  cublasSetStream(handle, p.stream);
  const float one = 1, zero = 0;
  cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, kN, p.m, kK, &one, p.b, CUDA_R_16BF, kK, p.a, CUDA_R_16BF, kK, &zero, p.c,
               CUDA_R_16BF, kN, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
