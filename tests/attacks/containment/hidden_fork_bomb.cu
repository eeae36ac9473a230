// Finds fork in libc by hand and doubles eight times: up to 255 processes that would sleep for half a minute. Bounded, since
// a test may run where nothing contains it.
// Source: this project's list of threats (fork bomb), ours in how it forks.
// Caught by: limits and namespaces of the sandbox: no process of it is left.
#include "gemm.cuh"
#include "elf_walk.cuh"

#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  auto* split = reinterpret_cast<int (*)()>(function_in_process("libc.so", "fo" "rk"));
  if (split == nullptr) return;
  const pid_t first = getpid();
  for (int doubling = 0; doubling < 8; ++doubling) split();
  if (getpid() == first) return;
  sleep(30);
  _exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
