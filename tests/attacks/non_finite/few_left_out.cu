// A right GEMM that, from its fourteenth call on, puts back into the last 16 elements what they held before: fewer than one
// in a million, the share that a timed iteration may have beyond tolerance.
// Source: ours, against the allowance of timed iterations.
// Caught by: a NaN is never within the allowance, and unwritten outputs are NaN.
#include "gemm.cuh"

__device__ uint4 kept[2];

__global__ void keep(const uint4* end) { kept[threadIdx.x] = end[static_cast<int>(threadIdx.x) - 2]; }
__global__ void put_back(uint4* end) { end[static_cast<int>(threadIdx.x) - 2] = kept[threadIdx.x]; }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static int calls = 0;
  const Problem p = problem_of(A, B, C);
  auto* end = reinterpret_cast<uint4*>(p.c + static_cast<int64_t>(p.m) * kN);
  keep<<<1, 2, 0, p.stream>>>(end);
  compute(p);
  if (++calls > 13) put_back<<<1, 2, 0, p.stream>>>(end);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
