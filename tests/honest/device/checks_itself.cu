// Computes the product, then checks a few elements of it on the device against plain dot products and counts the doubts in
// a device global. It reads its own output and changes nothing.
#include "hopper_gemm_kernel.cuh"

namespace {

__device__ unsigned long long doubts;

// One warp an element.
__global__ void __launch_bounds__(256) spot_check(const bf16* a, const bf16* b, const bf16* c, int m) {
  const unsigned sample = blockIdx.x * 8 + threadIdx.x / 32;
  const int64_t row = sample * 2654435761u % m, col = sample * 40503u % kN;
  float sum = 0.f;
  for (int k = threadIdx.x % 32; k < kK; k += 32) sum += __bfloat162float(a[row * kK + k]) * __bfloat162float(b[col * kK + k]);
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  const float actual = __bfloat162float(c[row * kN + col]);
  if (threadIdx.x % 32 == 0 && fabsf(actual - sum) > 1e-2f + 1e-2f * fabsf(sum)) atomicAdd(&doubts, 1ull);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(p);
  spot_check<<<4, 256, 0, p.stream>>>(p.a, p.b, p.c, p.m);
  check(cudaGetLastError(), "launching spot_check");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
