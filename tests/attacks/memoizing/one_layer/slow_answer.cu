// Computes once, keeps the result, and copies it back in every later call, no sooner than a very good kernel would be
// done.
// Source: ours, after the candidates that remember results by pointer.
// Caught by: fresh inputs alone; every call writes all of C, and the latency is plausible.
#include "one_layer.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16* result = nullptr;
  const Problem p = problem_of(A, B, C);
  if (result == nullptr) {
    result = kept<bf16>(bytes_of_c(p));
    compute(p);
    copy(result, p.c, bytes_of_c(p), p.stream);
  } else {
    copy(p.c, result, bytes_of_c(p), p.stream);
    pass_time(p);
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
