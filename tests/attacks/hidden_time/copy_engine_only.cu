// After the first call nothing but the copy engine works: no kernel is launched, and whoever adds up kernels reads zero.
// Source: this project's list of threats (memcpy engines).
// Caught by: other data in every timed iteration; copies count in the span.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16* result = nullptr;
  const Problem p = problem_of(A, B, C);
  if (result == nullptr) {
    result = scratch<bf16>(bytes_of_c(p));
    compute(p);
    copy(result, p.c, bytes_of_c(p), p.stream);
  }
  check(cudaMemcpy2DAsync(p.c, kN * 2, result, kN * 2, kN * 2, p.m, cudaMemcpyDeviceToDevice, p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
