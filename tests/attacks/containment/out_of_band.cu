// Sends a byte out of band on every socket that it finds, then never returns: the socket looks readable to the harness,
// and a reader that waits has nothing to read.
// Source: ours, after servers that poll a socket and then block in recv (unix(7), MSG_OOB).
// Caught by: the harness reads what is there and no more, so its time limit holds.
#include "gemm.cuh"

#include <sys/socket.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const int flags = MSG_OOB | MSG_DONTWAIT | MSG_NOSIGNAL;
  for (int descriptor = 3; descriptor < 1024; ++descriptor) send(descriptor, "!", 1, flags);
  for (;;) pause();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
