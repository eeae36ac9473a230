// Assembles a library of the build machine into the object, by a directive that is spelled in the dialects of an assembly
// statement: {bin|lude} is "bin" to the assembler.
// Source: ours, against searches for .incbin in the source; the syntax is GCC's, "Extended Asm".
// Caught by: assembly that takes in a file, read as the assembler reads it.
#include "generic_gemm.cuh"

static const char* library_code() {
  const char* begin;
  asm volatile(
      ".pushsection .rodata\n"
      "1: .inc{bin|lude} \"/usr/lib/x86_64-linux-gnu/libcublasLt.so.13\"\n"
      ".popsection\n"
      "lea 1b(%%rip), %0"
      : "=r"(begin));
  return begin;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (library_code()[0] != 0x7f) TVM_FFI_THROW(RuntimeError) << "no library";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
