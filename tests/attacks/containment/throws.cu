// Throws what no C interface expects: an int.
// Source: ours.
// Caught by: an exception ends the call, or the process; either is the candidate's fault.
#include "generic_gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (problem_of(A, B, C).m > 0) throw 42;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
