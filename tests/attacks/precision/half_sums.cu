// Sums in half precision, as tensor cores with FP16 accumulators do: the sum of every 64 products is rounded to FP16.
// Source: THREATS of this project (FP16 accumulators).
// Caught by: the official tolerance, in outputs near zero.
#include "generic_gemm.cuh"

#include <cuda_fp16.h>

__global__ void __launch_bounds__(kThreads, 2) half_gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  extern __shared__ __align__(128) unsigned char smem[];
  const int thread = threadIdx.x, lane = thread % 32;
  const int first_row = blockIdx.x % (m / kTile) * kTile, first_col = blockIdx.x / (m / kTile) * kTile;
  const uint32_t stages = shared_address(smem);
  const uint32_t own_chunk = thread / 8 * kBlockK * 2 + ((thread ^ (thread / 8)) % 8) * 16;
  const bf16* from_a = a + static_cast<int64_t>(first_row + thread / 8) * kK + thread % 8 * 8;
  const bf16* from_b = b + static_cast<int64_t>(first_col + thread / 8) * kK + thread % 8 * 8;
  const int warp_row = thread / 64 * 64, warp_col = thread / 32 % 2 * 64;
  const uint32_t row_a = (warp_row + lane % 16) * kBlockK * 2;
  const uint32_t row_b = kTileBytes + (warp_col + lane % 8 + lane / 16 * 8) * kBlockK * 2;
  float sum[4][8][4] = {};
  for (int block = 0; block < kK / kBlockK; ++block) {
    __syncthreads();
    load_stage(stages + own_chunk, from_a + block * kBlockK, from_b + block * kBlockK);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    multiply_stage(sum, stages, row_a, row_b, lane);
#pragma unroll
    for (int i = 0; i < 128; ++i) (&sum[0][0][0])[i] = __half2float(__float2half((&sum[0][0][0])[i]));
  }
#pragma unroll
  for (int i = 0; i < 128; ++i) {
    const int row = first_row + warp_row + i / 32 * 16 + i % 4 / 2 * 8 + lane / 4;
    const int col = first_col + warp_col + i / 4 % 8 * 8 + lane % 4 * 2 + i % 2;
    c[static_cast<int64_t>(row) * kN + col] = __float2bfloat16((&sum[0][0][0])[i]);
  }
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) { launch_gemm(half_gemm, problem_of(A, B, C)); }

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
