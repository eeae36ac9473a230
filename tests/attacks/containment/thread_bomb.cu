// Starts threads until the system refuses, 4096 at most, each of which would sleep for a minute. C is not computed.
// Source: this project's list of threats (fork bomb).
// Caught by: the limit on processes and threads; all end with the process.
#include "gemm.cuh"

#include <unistd.h>

#include <thread>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  for (int i = 0; i < 4096; ++i) std::thread([] { sleep(60); }).detach();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
