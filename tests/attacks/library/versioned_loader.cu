// The dynamic loader behind another name, by a symbol's version: what the object calls is named dlopen@GLIBC_2.2.5.
// Source: ours, against searches for names among the object's symbols; the directive is GNU as's .symver.
// Caught by: the functions that the built object calls, without their versions.
#include "generic_gemm.cuh"

__asm__(".symver tune, dlopen@GLIBC_2.2.5\n.symver parameter, dlsym@GLIBC_2.2.5");
extern "C" void* tune(const char*, int);
extern "C" void* parameter(void*, const char*);

using Create = int (*)(void**);
using SetStream = int (*)(void*, cudaStream_t);
using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                     void*, int, int, int, int);

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static void* library = tune("libcublas.so.13", 2);
  static void* handle = nullptr;
  if (library == nullptr) TVM_FFI_THROW(RuntimeError) << "no library";
  const Problem p = problem_of(A, B, C);
  if (handle == nullptr) reinterpret_cast<Create>(parameter(library, "cublasCreate_v2"))(&handle);
  reinterpret_cast<SetStream>(parameter(library, "cublasSetStream_v2"))(handle, p.stream);
  const float one = 1, zero = 0;
  reinterpret_cast<Gemm>(parameter(library, "cublasGemmEx"))(handle, 1, 0, kN, p.m, kK, &one, p.b, 14, kK, p.a, 14, kK,
                                                             &zero, p.c, 14, kN, 68, -1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
