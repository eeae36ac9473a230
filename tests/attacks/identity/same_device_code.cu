// The device code, the names and the entry of the right GEMM, byte for byte. Only the host code differs: it hands B over in
// A's place. Whoever finds builds or evidence by the device code's hash or by a name takes one for the other.
// Source: ours, against stores keyed by cubin or name.
// Caught by: source and device code must both be those of the evidence.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  Problem p = problem_of(A, B, C);
  p.m = kN;  // as many rows as B has
  p.a = p.b;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
