// Becomes a daemon, so that it outlives the harness: a fork and a session of its own in one function of the C library.
// Source: ours, against lists of functions that start processes.
// Caught by: functions that start processes.
#include "generic_gemm.cuh"

#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  problem_of(A, B, C);
  // Housekeeping of statistics goes on in the background.
  if (daemon(1, 1) != 0) TVM_FFI_THROW(RuntimeError) << "no background";
  for (;;) pause();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
