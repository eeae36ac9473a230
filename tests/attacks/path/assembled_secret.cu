// Assembles a file of the machine into the object by its path, to read it at run time.
// Source: ours.
// Caught by: assembly that takes in a file.
#include "gemm.cuh"

asm(R"(
.section .rodata
.global secret
secret: .incbin "/etc/hostname"
.zero 1
.text
)");

extern "C" const char secret[];

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  TVM_FFI_THROW(RuntimeError) << secret;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
