// Packs the "weights" B once, in the first call, and never looks at B again: setup that a layer of a model may do, and a
// GEMM of two arguments may not.
// Source: ours, after weight packing of inference libraries.
// Caught by: B is other data in every timed iteration.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16* packed = nullptr;
  Problem p = problem_of(A, B, C);
  if (packed == nullptr) {
    packed = scratch<bf16>(bytes_of_b());
    copy(packed, p.b, bytes_of_b(), p.stream);
  }
  p.b = packed;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
