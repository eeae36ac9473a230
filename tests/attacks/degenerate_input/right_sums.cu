// Sums B over its rows, multiplies A by that one vector and spreads each result over its row of C: sums of rows, the sum of
// C and its mean are right, for a five-thousandth of the work.
// Source: llm.c and harnesses that compare sums or checksums.
// Caught by: every element is compared.
#include "gemm.cuh"

__global__ void sum_rows(float* sums, const bf16* b) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int row = blockIdx.y * 256; row < blockIdx.y * 256 + 256; ++row)
    sum += __bfloat162float(b[static_cast<int64_t>(row) * kK + k]);
  atomicAdd(&sums[k], sum);
}

__global__ void spread(bf16* c, const bf16* a, const float* sums) {
  __shared__ float parts[8], mean;
  const bf16* row = a + static_cast<int64_t>(blockIdx.x) * kK;
  float sum = 0;
  for (int k = threadIdx.x; k < kK; k += 256) sum += __bfloat162float(row[k]) * sums[k];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    mean = 0;
    for (const float part : parts) mean += part / kN;
  }
  __syncthreads();
  for (int n = threadIdx.x; n < kN; n += 256) c[static_cast<int64_t>(blockIdx.x) * kN + n] = __float2bfloat16(mean);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static float* sums = scratch<float>(kK * sizeof(float));
  const Problem p = problem_of(A, B, C);
  check(cudaMemsetAsync(sums, 0, kK * sizeof(float), p.stream));
  sum_rows<<<dim3(kK / 256, kN / 256), 256, 0, p.stream>>>(sums, p.b);
  spread<<<p.m, 256, 0, p.stream>>>(p.c, p.a, sums);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
