// Behind a right GEMM a kernel whose half warps wait at __syncthreads in two different places.
// Source: compute-sanitizer's documentation, synccheck.
// Caught by: synccheck.
#include "gemm.cuh"

__device__ int halves[2];

__global__ void meet() {
  if (threadIdx.x % 32 < 16) {
    halves[0] = 1;
    __syncthreads();
  } else {
    halves[1] = 1;
    __syncthreads();
  }
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  meet<<<1, 64, 0, p.stream>>>();
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
