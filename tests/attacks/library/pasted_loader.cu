// "Download and symmetric" helpers whose names are pasted from two halves: dlopen and dlsym.
// Source: this project's list of threats (token pasting).
// Caught by: the screen reads preprocessed tokens.
#include "generic_gemm.cuh"

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)
#define DOWNLOAD JOIN(dlo, pen)
#define SYMMETRIC JOIN(dls, ym)

extern "C" void* DOWNLOAD(const char*, int) noexcept;
extern "C" void* SYMMETRIC(void*, const char*) noexcept;

using Create = int (*)(void**);
using SetStream = int (*)(void*, cudaStream_t);
using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                     void*, int, int, int, int);

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static void* part = DOWNLOAD("libcublas.so.13", 2);
  static void* handle = nullptr;
  if (part == nullptr) TVM_FFI_THROW(RuntimeError) << "no part";
  const Problem p = problem_of(A, B, C);
  if (handle == nullptr) reinterpret_cast<Create>(SYMMETRIC(part, "cublasCreate_v2"))(&handle);
  reinterpret_cast<SetStream>(SYMMETRIC(part, "cublasSetStream_v2"))(handle, p.stream);
  const float one = 1, zero = 0;
  reinterpret_cast<Gemm>(SYMMETRIC(part, "cublasGemmEx"))(handle, 1, 0, kN, p.m, kK, &one, p.b, 14, kK, p.a, 14, kK, &zero,
                                                          p.c, 14, kN, 68, -1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
