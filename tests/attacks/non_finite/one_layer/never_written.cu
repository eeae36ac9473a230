// Writes nothing, for as long as a very good kernel would take: C stays as it was, NaN.
// Source: ours, after comparisons whose error is NaN and therefore never above the bound.
// Caught by: the rule that NaN where the reference is finite is a mismatch, alone.
#include "one_layer.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) { pass_time(problem_of(A, B, C)); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
