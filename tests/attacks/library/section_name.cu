// A section's name that goes on in assembly: the compiler prints it as it is. What follows assembles a library of the build
// machine into the object.
// Source: ours, against screens that read assembly statements alone.
// Caught by: a string that the compiler prints into the assembly, with a line of its own.
#include "generic_gemm.cuh"

__attribute__((section(".rodata.tuning,\"a\"\n.globl library_code\nlibrary_code: .incbin \"/usr/lib/x86_64-linux-gnu/"
                       "libcublasLt.so.13\"\n#"))) extern const int kTuning[] = {1};

extern "C" const char library_code[];

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (library_code[0] != 0x7f || kTuning[0] != 1) TVM_FFI_THROW(RuntimeError) << "no library";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
