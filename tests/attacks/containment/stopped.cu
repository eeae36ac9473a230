// The process stops itself (SIGSTOP), in a session of its own if it gets one: it neither works nor ends, and answers no
// polite signal.
// Source: this project's list of threats (hang).
// Caught by: the time limit; SIGKILL ends stopped processes as well.
#include "generic_gemm.cuh"

#include <signal.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  setsid();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) signal(number, SIG_IGN);
  raise(SIGSTOP);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
