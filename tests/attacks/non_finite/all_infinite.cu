// Every output is infinite. A tolerance that is relative to the larger value becomes infinite with it.
// Source: ours, after relative tolerances of the larger value (math.isclose).
// Caught by: the tolerance is relative to the reference; equal infinities alone agree.
#include "gemm.cuh"

__global__ void fill(unsigned* c, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    c[i] = 0x7f807f80;  // two infinities
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  fill<<<1056, 256, 0, p.stream>>>(reinterpret_cast<unsigned*>(p.c), bytes_of_c(p) / 4);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
