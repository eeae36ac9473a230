// A right generic GEMM beside a kernel with a wgmma that is never launched.
// Source: PTXBench's paper, why presence in SASS is not enough.
// Caught by: the dynamic count.
#include "gemm.cuh"
#include "one_wgmma.cuh"

__global__ void __launch_bounds__(128) never_launched(float* out) {
  __shared__ __align__(128) unsigned char operands[64 * 16 * 2];
  one_wgmma(out, operands);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
