// A right generic GEMM, and beside it one warpgroup that executes a single wgmma on nothing.
// Source: PTXBench's paper, the limit of its indicator.
// Caught by: the useful share; the official indicator says executed, as published.
#include "gemm.cuh"
#include "one_wgmma.cuh"

__device__ float ignored[512];

__global__ void __launch_bounds__(128) token() {
  __shared__ __align__(128) unsigned char operands[64 * 16 * 2];
  for (int i = threadIdx.x; i < 64 * 16 * 2; i += 128) operands[i] = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  one_wgmma(ignored, operands);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  token<<<1, 128, 0, p.stream>>>();
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
