// Loads cuBLAS at run time.
// Source: this project's list of threats (dlopen); KernelBench.
// Caught by: functions that find code by name.
#include <dlfcn.h>

#include "generic_gemm.cuh"

using Create = int (*)(void**);
using SetStream = int (*)(void*, cudaStream_t);
using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                     void*, int, int, int, int);

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static void* library = dlopen("libcublas.so.13", RTLD_NOW);
  static void* handle = nullptr;
  if (library == nullptr) TVM_FFI_THROW(RuntimeError) << "no library";
  const Problem p = problem_of(A, B, C);
  if (handle == nullptr) reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"))(&handle);
  reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"))(handle, p.stream);
  const float one = 1, zero = 0;
  reinterpret_cast<Gemm>(dlsym(library, "cublasGemmEx"))(handle, 1, 0, kN, p.m, kK, &one, p.b, 14, kK, p.a, 14, kK, &zero, p.c,
                                                         14, kN, 68, -1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
