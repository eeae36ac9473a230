// An "autotuner" notes in shared memory (/dev/shm, 8 bytes) that this binary was validated. Whoever finds the note, the same
// process or the next one, takes the "tuned" path, which launches nothing that computes.
// Source: this project's list of threats (results kept in /dev/shm).
// Caught by: timed iterations are checked; /dev/shm of a sandbox is private and empty.
#include "gemm.cuh"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

// The number of completed tuning runs.
long tuned(long increment) {
  static long here = 0;  // where nothing is shared, at least this process knows
  here += increment;
  const int file = shm_open("/gemm-tuning-record", O_RDWR | O_CREAT, 0600);
  if (file < 0) return here;
  long runs = 0;
  if (read(file, &runs, sizeof runs) != sizeof runs) runs = 0;
  runs += increment;
  if (pwrite(file, &runs, sizeof runs, 0) != sizeof runs) runs = 0;
  close(file);
  return runs;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static long runs = tuned(0);
  const Problem p = problem_of(A, B, C);
  if (runs > 3) return do_nothing(p);  // the best configuration is known
  compute(p);
  runs = tuned(1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
