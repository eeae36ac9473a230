// Computes in every other call after the first fourteen and rests in between, so that half of the timed iterations are
// trivial and a median between the two halves moves.
// Source: ours, after robust-kbench's remark on medians.
// Caught by: secretly chosen timed iterations are compared in full.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static int calls = 0;
  const Problem p = problem_of(A, B, C);
  if (calls++ < 14 || calls % 2 == 0) return compute(p);
  do_nothing(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
