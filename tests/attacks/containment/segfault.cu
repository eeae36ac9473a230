// Host code that writes to a null pointer.
// Source: this project's list of threats (segfault).
// Caught by: the process is the candidate's own.
#include "generic_gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  volatile uintptr_t address = 8;
  *reinterpret_cast<volatile int*>(address) = 1;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
