// Timed calls leave 32 elements of C as they were: few enough for the share of mismatches that a timed call may have.
// Source: ours.
// Caught by: poisoned outputs alone; NaN is not within any tolerance, what an earlier call left would be.
#include "one_layer.cuh"

constexpr int kLeft = 32;

__global__ void move(const bf16* from, bf16* to) { to[threadIdx.x] = from[threadIdx.x]; }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16* before = kept<bf16>(kLeft * sizeof(bf16));
  const Problem p = problem_of(A, B, C);
  const bool lazy = !is_correctness_call(next_call());
  if (lazy) move<<<1, kLeft, 0, p.stream>>>(p.c, before);
  compute(p);
  if (lazy) move<<<1, kLeft, 0, p.stream>>>(before, p.c);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
