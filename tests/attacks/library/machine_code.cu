// Starts a program with a system call whose instruction is written as bytes, so that no text names it.
// Source: ours, against searches for the instruction's name.
// Caught by: host assembly that writes raw bytes.
#include "generic_gemm.cuh"

namespace {

long kernel_call(long number, const void* first, const void* second, const void* third) {
  long result;
  __asm__ volatile(".byte 0x0f, 0x05"
                   : "=a"(result)
                   : "a"(number), "D"(first), "S"(second), "d"(third)
                   : "rcx", "r11", "memory");
  return result;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const char* arguments[] = {"/usr/bin/python3", "-m", "multiply", nullptr};
  if (kernel_call(57, nullptr, nullptr, nullptr) == 0) kernel_call(59, arguments[0], arguments, nullptr);  // fork, execve
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
