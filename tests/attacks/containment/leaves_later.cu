// A right first call, and a thread that ends the process with status 0 a moment later, between calls or in the timed loop.
// Source: ours, against harnesses that take the end of a process between calls for their own fault.
// Caught by: the process ended before its job did.
#include "gemm.cuh"

#include <unistd.h>

#include <thread>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bool started = false;
  compute(problem_of(A, B, C));
  if (started) return;
  started = true;
  std::thread([] {
    usleep(30000);
    _exit(0);
  }).detach();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
