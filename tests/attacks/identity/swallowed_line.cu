// The text of the right GEMM, with one more comment. It ends in a backslash, and so the next line belongs to it: the launch.
// Whoever compares sources without comments, or joined lines, takes one for the other.
// Source: ours, against keys of normalized text.
// Caught by: a hash of the source as it is.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  do_nothing(p);
  // Tiles are walked as in the comment above gemm_tile: /8 wide\
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
