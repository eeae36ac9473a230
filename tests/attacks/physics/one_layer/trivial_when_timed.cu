// Computes in the calls that everybody knows to be checked, and in the others starts one kernel that does nothing.
// Source: ours, after the candidates that are right for the first calls.
// Caught by: timed checks and, where those are missing, the physical floor: no GEMM takes two microseconds.
#include "one_layer.cuh"

__global__ void touch() {}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  if (is_correctness_call(next_call())) {
    compute(p);
  } else {
    touch<<<1, 1, 0, p.stream>>>();
    check(cudaGetLastError());
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
