// A correct generic GEMM beside a kernel that holds a wgmma and is never launched.
// Source: the paper's decoys.
// Caught by: dynamic counts alone; a static inspection finds the instruction.
#include "one_layer.cuh"
#include "one_wgmma.cuh"

__global__ void __launch_bounds__(128) spare(float* out) {
  __shared__ __align__(128) unsigned char operands[64 * 16 * 2];
  one_wgmma(out, operands);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) { compute(problem_of(A, B, C)); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
