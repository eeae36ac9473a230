// Multiplies the first 128 of 5120 columns and scales by 40, as if the product had low rank: forty times less work than the
// workload has, and a latency below its roofline.
// Source: GPU MODE's leaderboards, submissions above the peak of the device.
// Caught by: every element is compared; the latency would be flagged implausible.
#include "gemm.cuh"

__global__ void __launch_bounds__(kThreads, 2) sketch(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_tile(a, b, c, m, 128 / kBlockK);
}

__global__ void rescale(bf16* c, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    c[i] = __float2bfloat16(40.0f * __bfloat162float(c[i]));
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  launch_gemm(sketch, p);
  rescale<<<1056, 256, 0, p.stream>>>(p.c, static_cast<int64_t>(p.m) * kN);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
