#pragma once
#include "fences.cuh"
#include "fragments.cuh"
#include "mbarrier.cuh"
#include "tensor_map.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// How the parts fit, the smallest case: C = A B^T for A, B [rows, 64] in tiles of 64 rows, one block of 128 threads a tile.
// Launch: tile_kernel<<<rows / 64, 128, 3 * 8192 + 1024, stream_of(A)>>>(map of A, of B, of C; boxes of 64 x 64).
__global__ void __launch_bounds__(128) tile_kernel(const __grid_constant__ CUtensorMap map_a,
                                                   const __grid_constant__ CUtensorMap map_b,
                                                   const __grid_constant__ CUtensorMap map_c) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t a = align_up(smem_u32(raw), 1024), b = a + 8192, c = b + 8192, bar = smem_u32(&barrier);
  const int t = threadIdx.x, y = static_cast<int>(blockIdx.x) * 64;
  if (t == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (t == 0) {
    mbar_expect_tx(bar, 2 * 8192);
    tma_load(a, &map_a, bar, 0, y);
    tma_load(b, &map_b, bar, 0, y);
  }
  mbar_wait(bar, 0);  // all threads; the first phase has parity 0
  float d[32];
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_ss(d, desc_k_major(a) + 2 * k, desc_k_major(b) + 2 * k, k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
  store_box(c, d, t);
  fence_async_smem();
  __syncthreads();
  if (t == 0) {
    tma_store(&map_c, c, 0, y);
    tma_commit();
    tma_wait<0>();  // before the block ends
  }
}
