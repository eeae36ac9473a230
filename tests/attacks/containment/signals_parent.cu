// Looks whether it can signal its parent and everybody else, and sends what harms nobody (SIGCONT to the parent, the null
// signal to all). A hostile one would stop the oracle. C is not computed.
// Source: this project's list of threats (signal games).
// Caught by: the sandbox's pid namespace; outputs are poisoned.
#include "gemm.cuh"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const pid_t parent = getppid();
  const bool reachable = parent > 0 && kill(parent, 0) == 0;
  if (reachable) kill(parent, SIGCONT);
  fprintf(stderr, "parent %s, others %s\n", reachable ? "reachable" : "out of reach", kill(-1, 0) == 0 ? "reachable" : "not");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
