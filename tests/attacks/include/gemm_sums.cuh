// A generic GEMM of one stage whose sums are open to whoever rounds them: after every 64 of K, and when they are stored.
#include "generic_gemm.cuh"

// round(sum) is applied to each of a thread's 128 sums after each step of 64 along K; store(sum) gives the element of C.
template <typename Round, typename Store>
__device__ __forceinline__ void gemm_with_sums(const bf16* a, const bf16* b, bf16* c, int m, Round round, Store store) {
  extern __shared__ __align__(128) unsigned char smem[];
  const int thread = threadIdx.x, lane = thread % 32;
  const int first_row = blockIdx.x % (m / kTile) * kTile, first_col = blockIdx.x / (m / kTile) * kTile;
  const int warp_row = thread / 64 * 64, warp_col = thread / 32 % 2 * 64;
  const uint32_t stages = shared_address(smem);
  const uint32_t own_chunk = thread / 8 * kBlockK * 2 + ((thread ^ (thread / 8)) % 8) * 16;
  const bf16* from_a = a + static_cast<int64_t>(first_row + thread / 8) * kK + thread % 8 * 8;
  const bf16* from_b = b + static_cast<int64_t>(first_col + thread / 8) * kK + thread % 8 * 8;
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
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum[i][j][k] = round(sum[i][j][k]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = first_row + warp_row + i * 16 + k / 2 * 8 + lane / 4;
        const int col = first_col + warp_col + j * 8 + lane % 4 * 2 + k % 2;
        c[static_cast<int64_t>(row) * kN + col] = store(sum[i][j][k]);
      }
}
