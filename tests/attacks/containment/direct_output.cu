// Computes nothing, and has its standard output read past every cache: a reading at an odd offset by anybody who shares
// the open file fails then, and whoever quotes what a candidate printed might fail with it.
// Source: ours, after open file descriptions, whose flags belong to all that hold them (fcntl(2), F_SETFL).
// Caught by: what was printed is read back through a description of the harness's own.
#include "gemm.cuh"

#include <fcntl.h>
#include <stdio.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  printf("tuned for throughput\n");
  fflush(stdout);
  // "Unbuffered output for clean benchmarks."
  fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_DIRECT);
  do_nothing(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
