// Overwrites A with zeros and answers C = 0, which is right for a reference that is computed afterwards from the same A.
// Source: KernelBench's and BackendBench's reports of candidates that change their inputs.
// Caught by: inputs are compared after the call, and the reference never reads the candidate's copy.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  check(cudaMemsetAsync(p.a, 0, bytes_of_a(p), p.stream));
  check(cudaMemsetAsync(p.c, 0, bytes_of_c(p), p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
