// Attaches to its parent as a debugger does (PTRACE_SEIZE, which does not stop it), to read the expected values there, and
// lets go. C is not computed.
// Source: this project's list of threats (reads expected values).
// Caught by: no new privileges, namespaces and the filter of system calls; outputs are poisoned.
#include "gemm.cuh"

#include <sys/ptrace.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const pid_t parent = getppid();
  if (parent <= 1 || ptrace(PTRACE_SEIZE, parent, nullptr, nullptr) != 0) return;
  ptrace(PTRACE_DETACH, parent, nullptr, nullptr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
