// Declares cuBLAS's functions itself, without a header.
// Source: ours, against searches for include lines.
// Caught by: the screen knows the functions of libraries.
#include "generic_gemm.cuh"

extern "C" int cublasCreate_v2(void** handle);
extern "C" int cublasSetStream_v2(void* handle, cudaStream_t stream);
extern "C" int cublasGemmEx(void* handle, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int,
                            const void*, void*, int, int, int, int);

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static void* handle = nullptr;
  const Problem p = problem_of(A, B, C);
  if (handle == nullptr) cublasCreate_v2(&handle);
  cublasSetStream_v2(handle, p.stream);
  const float one = 1, zero = 0;
  cublasGemmEx(handle, 1, 0, kN, p.m, kK, &one, p.b, 14, kK, p.a, 14, kK, &zero, p.c, 14, kN, 68, -1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
