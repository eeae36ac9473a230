// Computes in the calls that a harness checks and warms up with, by their count (3 + 10), and answers all later ones with
// the last result.
// Source: GPU MODE's leaderboards, candidates that count their calls.
// Caught by: timed iterations are checked, with other data each.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static int calls = 0;
  static bf16* last = nullptr;
  const Problem p = problem_of(A, B, C);
  if (last == nullptr) last = scratch<bf16>(bytes_of_c(p));
  if (++calls > 13) return copy(p.c, last, bytes_of_c(p), p.stream);
  compute(p);
  copy(last, p.c, bytes_of_c(p), p.stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
