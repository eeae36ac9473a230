// A right GEMM that sets an alarm: the signal ends the process some 50 ms later, whatever it does then.
// Source: this project's list of threats (signal games).
// Caught by: the process ended before its job did.
#include "gemm.cuh"

#include <signal.h>
#include <sys/time.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bool set = false;
  compute(problem_of(A, B, C));
  if (set) return;
  set = true;
  signal(SIGALRM, SIG_DFL);
  const itimerval once{{0, 0}, {0, 50000}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
