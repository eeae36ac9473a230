#pragma once
#include "base.cuh"

// Rank of this block in its cluster, and the cluster's size. Kernel: __cluster_dims__(n, 1, 1); grid a multiple of n.
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ uint32_t cluster_size() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

// All threads of all blocks of the cluster, each wait after an arrive. arrive releases, wait acquires, cluster-wide;
// arrive_relaxed orders nothing. Between the two, work that touches no other block.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The unaligned forms: warps may arrive diverged, as at the end of a kernel with roles. Before a block exits whose shared
// memory or barriers others still use, and after mbar_init where others use the barriers.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
}

// Address of the same shared-memory offset in block `rank`: for dsmem_* and for bulk copies. Not for smem operands of TMA.
__device__ __forceinline__ uint32_t cluster_map(uint32_t addr, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(addr), "r"(rank));
  return remote;
}
// Ordinary accesses to another block's shared memory; `remote` from cluster_map. Order them by cluster_sync, or by
// mbar_arrive_remote_release and mbar_wait_cluster.
__device__ __forceinline__ uint32_t dsmem_load(uint32_t remote) {
  uint32_t value;
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
  return value;
}
__device__ __forceinline__ void dsmem_store(uint32_t remote, uint32_t value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(value) : "memory");
}
// Stores 4 bytes there, then counts 4 bytes on a barrier of the same block (both addresses from cluster_map), which must
// expect them. Visible to who waits on that barrier.
__device__ __forceinline__ void dsmem_store_async(uint32_t remote, uint32_t value, uint32_t remote_bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(value),
               "r"(remote_bar)
               : "memory");
}
// One thread. Own shared memory -> another block's, 16-byte aligned, `bytes` a multiple of 16, counted on its barrier.
// After ordinary writes to src: fence_async_smem() by the writers and a barrier.
__device__ __forceinline__ void dsmem_copy(uint32_t remote, uint32_t src, uint32_t bytes, uint32_t remote_bar) {
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(remote),
               "r"(src), "r"(bytes), "r"(remote_bar)
               : "memory");
}
