// A header of "tuning parameters", whose name is put together by macros from pieces that say nothing: it is cublas_v2.h.
// Source: ours, against searches for include lines.
// Caught by: the screen reads what the preprocessor read.
#define TUNING_PREFIX cu
#define TUNING_FILE_(prefix) prefix##blas_v2.h
#define TUNING_FILE(prefix) TUNING_FILE_(prefix)
#define AS_TEXT_(name) #name
#define AS_TEXT(name) AS_TEXT_(name)
#include AS_TEXT(TUNING_FILE(TUNING_PREFIX))

#include "generic_gemm.cuh"

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
