// The library's call that this kernel replaced is still in the file, disabled.
#include "hopper_gemm_kernel.cuh"

#if 0
#include <cublas_v2.h>
#include <dlfcn.h>
static cublasHandle_t handle;
static void with_library(const Gemm& p) {
  void* library = dlopen("libcublas.so.13", RTLD_NOW);
  cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, kN, p.m, kK, &one, p.b, CUDA_R_16BF, kK, p.a, CUDA_R_16BF, kK, &zero, p.c,
               CUDA_R_16BF, kN, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
#endif

#ifdef COMPARE_WITH_CUBLAS
#include <cublasLt.h>
#endif

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  // with_library(gemm_of(A, B, C));
  wg::launch(gemm_of(A, B, C));
  // system("nvidia-smi");  cuModuleLoadData(&module, image);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
