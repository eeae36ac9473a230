// Assembles a file of the build machine into the object: a library's device code, if its path were known.
// Source: this project's list of threats (embedded cubin).
// Caught by: assembly that takes in a file.
#include "generic_gemm.cuh"

__asm__(
    ".pushsection .rodata\n"
    "library_code:\n"
    ".incbin \"/usr/lib/x86_64-linux-gnu/libcublasLt.so.13\"\n"
    ".popsection\n");

extern "C" const char library_code[];

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (library_code[0] != 0x7f) TVM_FFI_THROW(RuntimeError) << "no library";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
