// One trivial launch, nothing else: C keeps what it held, which in a careless harness is the reference's own answer.
// Source: SOL-ExecBench's and KernelBench's reports of candidates that return what is in reused memory.
// Caught by: poisoned outputs; no element of C is finite.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
