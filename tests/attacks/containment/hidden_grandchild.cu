// Finds fork in libc by hand, and leaves a grandchild in a session of its own that would sleep for a minute. C is not computed.
// Source: this project's list of threats (processes that get away), ours in how it forks.
// Caught by: limits and namespaces of the sandbox: no process of it is left.
#include "gemm.cuh"
#include "elf_walk.cuh"

#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  auto* split = reinterpret_cast<int (*)()>(function_in_process("libc.so", "fo" "rk"));
  if (split == nullptr || split() != 0) return;
  setsid();
  if (split() != 0) _exit(0);
  sleep(60);
  _exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
