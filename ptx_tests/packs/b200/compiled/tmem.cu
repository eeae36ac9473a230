// Checks of tmem.cuh: compiled and disassembled for sm_100a, never executed.
#include "tmem.cuh"

template <int kGroup>
__device__ __forceinline__ void allocation(uint32_t* out) {
  __shared__ uint32_t slot;
  if (threadIdx.x < 32) {
    tmem_alloc<kGroup>(smem_u32(&slot), 64);
    tmem_relinquish<kGroup>();
  }
  tmem_fence_before();
  __syncthreads();
  tmem_fence_after();
  out[threadIdx.x] = slot;
  if (kGroup == 2) cluster_sync();
  __syncthreads();
  if (threadIdx.x < 32) tmem_dealloc<kGroup>(slot, 64);
}
__global__ void check_allocation(uint32_t* out) { allocation<1>(out); }
__global__ void __cluster_dims__(2, 1, 1) check_allocation_pair(uint32_t* out) { allocation<2>(out); }

// Stores registers to TMEM and loads them back, in every number of registers that the pack has.
#define CHECK_SHAPE(shape, n)                                                      \
  __global__ void check_##shape##_n##n(uint32_t* out, uint32_t tmem) {             \
    uint32_t r[n];                                                                 \
    for (int i = 0; i < n; ++i) r[i] = out[i * 32 + threadIdx.x];                  \
    tmem_st_##shape(tmem, r);                                                      \
    tmem_wait_st();                                                                \
    tmem_ld_##shape(r, tmem);                                                      \
    tmem_wait_ld();                                                                \
    for (int i = 0; i < n; ++i) out[i * 32 + threadIdx.x] = r[i];                  \
  }

CHECK_SHAPE(32x32b, 1)
CHECK_SHAPE(32x32b, 2)
CHECK_SHAPE(32x32b, 4)
CHECK_SHAPE(32x32b, 8)
CHECK_SHAPE(32x32b, 16)
CHECK_SHAPE(32x32b, 32)
CHECK_SHAPE(32x32b, 64)
CHECK_SHAPE(32x32b, 128)
CHECK_SHAPE(16x64b, 8)
CHECK_SHAPE(16x64b, 16)
CHECK_SHAPE(16x64b, 32)
CHECK_SHAPE(16x64b, 64)
CHECK_SHAPE(16x128b, 8)
CHECK_SHAPE(16x128b, 16)
CHECK_SHAPE(16x128b, 32)
CHECK_SHAPE(16x128b, 64)
CHECK_SHAPE(16x256b, 8)
CHECK_SHAPE(16x256b, 16)
CHECK_SHAPE(16x256b, 32)
CHECK_SHAPE(16x256b, 64)
