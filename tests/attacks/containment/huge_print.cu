// Prints a quarter of a gigabyte, to fill a disk or to block a pipe that nobody empties.
// Source: this project's list of threats (huge print).
// Caught by: the limit on output; the process group is killed.
#include "gemm.cuh"

#include <stdio.h>
#include <string.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static char line[1 << 16];
  do_nothing(problem_of(A, B, C));
  memset(line, 'x', sizeof line);
  for (int i = 0; i < 4096; ++i) fwrite(line, 1, sizeof line, i % 2 == 0 ? stdout : stderr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
