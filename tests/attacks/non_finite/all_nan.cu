// Every output is NaN. A check that looks for an error above the tolerance finds none, since each comparison is false.
// Source: llm.c and KernelBench, comparisons with NaN.
// Caught by: NaN where the reference is finite is a mismatch.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  check(cudaMemsetAsync(p.c, 0xff, bytes_of_c(p), p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
