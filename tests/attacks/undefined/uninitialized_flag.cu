// Blocks look at a "skip" flag in new memory that nobody has written. Only one value of 2^32 skips, and C is right.
// Source: compute-sanitizer's documentation, initcheck.
// Caught by: initcheck.
#include "generic_gemm.cuh"

__global__ void __launch_bounds__(kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m, const unsigned* skip) {
  if (*skip == 0x5eed5eedu) return;  // set by callers that need no result
  gemm_tile(a, b, c, m, kK / kBlockK);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static unsigned* skip = nullptr;
  if (skip == nullptr) check(cudaMalloc(reinterpret_cast<void**>(&skip), sizeof *skip));
  launch_gemm(gemm, problem_of(A, B, C), static_cast<const unsigned*>(skip));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
