// Checks of barrier.cuh: compiled and disassembled for sm_100a, never executed.
#include "barrier.cuh"

__global__ void check_mbarrier(uint32_t* out) {
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 33);
    mbar_init_fence();
  }
  __syncthreads();
  if (threadIdx.x == 0) mbar_arrive_expect(bar, 0);
  mbar_arrive(bar);
  mbar_wait(bar, 0);
  out[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) mbar_inval(bar);
}

__global__ void __cluster_dims__(2, 1, 1) check_cluster(uint32_t* out) {
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier), rank = cluster_rank();
  if (threadIdx.x == 0) {
    mbar_init(bar, 32);
    mbar_init_fence();
  }
  cluster_arrive();
  cluster_wait();
  mbar_arrive_remote(cluster_map(bar, rank ^ 1));
  mbar_wait_cluster(bar, 0);
  out[threadIdx.x] = rank;
  cluster_sync();
}

__global__ void check_fences(uint32_t* out) {
  out[threadIdx.x] = 1;
  fence_async_smem();
  out[threadIdx.x + 32] = 2;
  fence_async_all();
  out[threadIdx.x + 64] = 3;
}

__global__ void __cluster_dims__(2, 1, 1) check_bulk_copy_to_cluster(uint32_t* out) {
  __shared__ alignas(128) uint32_t source[64], target[64];
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier), peer = cluster_rank() ^ 1;
  source[threadIdx.x] = threadIdx.x + peer;
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    mbar_init_fence();
    mbar_arrive_expect(bar, 256);
  }
  fence_async_smem();
  cluster_sync();
  if (threadIdx.x == 0) bulk_copy_to_cluster(cluster_map(smem_u32(target), peer), smem_u32(source), 256, cluster_map(bar, peer));
  mbar_wait_cluster(bar, 0);
  out[threadIdx.x] = target[threadIdx.x];
  cluster_sync();
}
