#pragma once
#include "base.cuh"

// One thread. An mbarrier is 8 bytes of shared memory, 8-byte aligned. A phase completes when `arrivals` arrivals and all
// expected bytes have come; then the next phase begins with the same count. Follow with fence_mbarrier_init() and a barrier.
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// One thread, when nobody uses the barrier any more: its memory may then hold something else.
__device__ __forceinline__ void mbar_inval(uint32_t bar) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}

// Any thread: one arrival, or `count` of them. Releases the caller's earlier accesses to those who wait (block scope).
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_arrive_count(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

// Expect `bytes` more in the current phase; then one arrival. Before the copies that bring the bytes are issued.
__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// The same without an arrival. Only while the phase cannot complete: some arrival must still be missing.
__device__ __forceinline__ void mbar_add_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// One arrival on the barrier at the same offset in block `rank` of the cluster, which may be the own block. Nobody can wait
// on a remote barrier. Says that a stage has been read (by wgmma, TMA or loads that are done); publishes no stores.
__device__ __forceinline__ void mbar_arrive_remote(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar), "r"(rank)
      : "memory");
}
// The same, and releases the caller's earlier stores to those who mbar_wait_cluster there. A memory barrier: not for loops
// that only hand back stages.
__device__ __forceinline__ void mbar_arrive_remote_release(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(bar), "r"(rank)
      : "memory");
}
// One arrival there, and `bytes` to expect there.
__device__ __forceinline__ void mbar_expect_tx_remote(uint32_t bar, uint32_t rank, uint32_t bytes) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.expect_tx.shared::cluster.b64 _, [remote], %2;\n}" ::"r"(bar), "r"(rank), "r"(bytes)
      : "memory");
}

// Whether the phase of this parity has completed: test_wait at once, try_wait after at most a system-chosen time.
// The first phase has parity 0; on a fresh barrier parity 1 counts as completed. Acquires at block scope.
__device__ __forceinline__ bool mbar_test_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}
__device__ __forceinline__ bool mbar_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {}
}
// Acquires at cluster scope: for what other blocks wrote into this block's shared memory with ordinary stores, and then
// announced by mbar_arrive_remote_release. (What TMA or dsmem_store_async wrote needs mbar_wait only.)
__device__ __forceinline__ void mbar_wait_cluster(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  }
}

// Place in a ring of kSlots stages. Consumers: mbar_wait(full[slot], phase). Producer: mbar_wait(empty[slot], phase ^ 1),
// which passes at once in the first round.
template <int kSlots>
struct Ring {
  int slot = 0;
  uint32_t phase = 0;
  __host__ __device__ __forceinline__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};
