#pragma once
#include "base.cuh"

// L2 policies for the functions named *_hint: the operand must come from here (0 is no policy). Once per thread.
__device__ __forceinline__ uint64_t policy_evict_first() {  // read once: streams
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_evict_last() {  // read by many blocks
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

enum class Reduce { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };

// TMA for boxes of 1 to 5 dimensions: TMA_DIMENSION defines the functions below for one number of coordinates, innermost
// first (for a matrix x: column, y: row). One thread issues. `map`: address of a __grid_constant__ parameter.
// - tma_load: global -> dst in this block's shared memory; counts the bytes of the full box on `bar`, which must expect
//   them, boxes over the edge included. dst 128-byte aligned, with a swizzle of 32 / 64 / 128 bytes to 256 / 512 / 1024.
// - tma_load_multicast: the same into every block of the cluster whose bit is in `mask`, at the same offsets of dst and
//   bar; each of these barriers must expect the bytes. *_hint: with an L2 policy.
// - tma_store, tma_reduce<Reduce::kAdd, ...>: src -> global, or combined with global element by element, atomically. Types
//   of the map: kAdd f16, bf16, f32, s32, u32; kMin, kMax f16, bf16, s32, u32; kInc, kDec u32; kAnd, kOr, kXor s32, u32.
//   After ordinary writes to src: fence_async_smem() by the writers, a barrier, then one thread: issue, tma_commit().
// - tma_prefetch: into L2 only.
// Coordinates count elements. x times the element size must be a multiple of 16 bytes, and stores and reductions may start
// at no negative coordinate: else "illegal instruction". Otherwise boxes may lie outside: loads give zeros there, stores and
// reductions skip; but they write whole 16-byte chunks, also past rows whose size is no multiple of 16 bytes.
#define TMA_REDUCE(DIM, OP, AT2)                                                                                \
  asm volatile("cp.reduce.async.bulk.tensor." DIM ".global.shared::cta." OP ".tile.bulk_group [%0, {" AT2 "}], [%1];" \
               ::"l"(map), "r"(src), TMA_COORDINATES : "memory")
#define TMA_DIMENSION(DIM, ARGS, AT1, AT2, AT3, AT4, AT5)                                                          \
  __device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, ARGS) {             \
    asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"           \
                 " [%0], [%1, {" AT3 "}], [%2];"                                                                   \
                 ::"r"(dst), "l"(map), "r"(bar), TMA_COORDINATES : "memory");                                      \
  }                                                                                                                \
  __device__ __forceinline__ void tma_load_hint(uint32_t dst, const CUtensorMap* map, uint32_t bar,                \
                                                uint64_t policy, ARGS) {                                           \
    asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"           \
                 ".L2::cache_hint [%0], [%1, {" AT4 "}], [%2], %3;"                                                \
                 ::"r"(dst), "l"(map), "r"(bar), "l"(policy), TMA_COORDINATES : "memory");                         \
  }                                                                                                                \
  __device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar,           \
                                                     uint16_t mask, ARGS) {                                        \
    asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"           \
                 ".multicast::cluster [%0], [%1, {" AT4 "}], [%2], %3;"                                            \
                 ::"r"(dst), "l"(map), "r"(bar), "h"(mask), TMA_COORDINATES : "memory");                           \
  }                                                                                                                \
  __device__ __forceinline__ void tma_load_multicast_hint(uint32_t dst, const CUtensorMap* map, uint32_t bar,      \
                                                          uint16_t mask, uint64_t policy, ARGS) {                  \
    asm volatile("cp.async.bulk.tensor." DIM ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"           \
                 ".multicast::cluster.L2::cache_hint [%0], [%1, {" AT5 "}], [%2], %3, %4;"                         \
                 ::"r"(dst), "l"(map), "r"(bar), "h"(mask), "l"(policy), TMA_COORDINATES : "memory");              \
  }                                                                                                                \
  __device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, ARGS) {                          \
    asm volatile("cp.async.bulk.tensor." DIM ".global.shared::cta.tile.bulk_group [%0, {" AT2 "}], [%1];"          \
                 ::"l"(map), "r"(src), TMA_COORDINATES : "memory");                                                \
  }                                                                                                                \
  __device__ __forceinline__ void tma_store_hint(const CUtensorMap* map, uint32_t src, uint64_t policy, ARGS) {    \
    asm volatile("cp.async.bulk.tensor." DIM ".global.shared::cta.tile.bulk_group.L2::cache_hint"                  \
                 " [%0, {" AT3 "}], [%1], %2;"                                                                     \
                 ::"l"(map), "r"(src), "l"(policy), TMA_COORDINATES : "memory");                                   \
  }                                                                                                                \
  template <Reduce kOp>                                                                                            \
  __device__ __forceinline__ void tma_reduce(const CUtensorMap* map, uint32_t src, ARGS) {                         \
    if constexpr (kOp == Reduce::kAdd) TMA_REDUCE(DIM, "add", AT2);                                                \
    if constexpr (kOp == Reduce::kMin) TMA_REDUCE(DIM, "min", AT2);                                                \
    if constexpr (kOp == Reduce::kMax) TMA_REDUCE(DIM, "max", AT2);                                                \
    if constexpr (kOp == Reduce::kInc) TMA_REDUCE(DIM, "inc", AT2);                                                \
    if constexpr (kOp == Reduce::kDec) TMA_REDUCE(DIM, "dec", AT2);                                                \
    if constexpr (kOp == Reduce::kAnd) TMA_REDUCE(DIM, "and", AT2);                                                \
    if constexpr (kOp == Reduce::kOr) TMA_REDUCE(DIM, "or", AT2);                                                  \
    if constexpr (kOp == Reduce::kXor) TMA_REDUCE(DIM, "xor", AT2);                                                \
  }                                                                                                                \
  __device__ __forceinline__ void tma_prefetch(const CUtensorMap* map, ARGS) {                                     \
    asm volatile("cp.async.bulk.prefetch.tensor." DIM ".L2.global.tile [%0, {" AT1 "}];"                           \
                 ::"l"(map), TMA_COORDINATES : "memory");                                                          \
  }
#define TMA_ARGS(...) __VA_ARGS__

#define TMA_COORDINATES "r"(x)
TMA_DIMENSION("1d", TMA_ARGS(int x), "%1", "%2", "%3", "%4", "%5")
#undef TMA_COORDINATES
#define TMA_COORDINATES "r"(x), "r"(y)
TMA_DIMENSION("2d", TMA_ARGS(int x, int y), "%1, %2", "%2, %3", "%3, %4", "%4, %5", "%5, %6")
#undef TMA_COORDINATES
#define TMA_COORDINATES "r"(x), "r"(y), "r"(z)
TMA_DIMENSION("3d", TMA_ARGS(int x, int y, int z), "%1, %2, %3", "%2, %3, %4", "%3, %4, %5", "%4, %5, %6", "%5, %6, %7")
#undef TMA_COORDINATES
#define TMA_COORDINATES "r"(x), "r"(y), "r"(z), "r"(w)
TMA_DIMENSION("4d", TMA_ARGS(int x, int y, int z, int w), "%1, %2, %3, %4", "%2, %3, %4, %5", "%3, %4, %5, %6",
              "%4, %5, %6, %7", "%5, %6, %7, %8")
#undef TMA_COORDINATES
#define TMA_COORDINATES "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
TMA_DIMENSION("5d", TMA_ARGS(int x, int y, int z, int w, int v), "%1, %2, %3, %4, %5", "%2, %3, %4, %5, %6",
              "%3, %4, %5, %6, %7", "%4, %5, %6, %7, %8", "%5, %6, %7, %8, %9")

// One thread, early: fetches the map itself, so that the first load does not wait for it.
__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The thread that issued stores, reductions or bulk_store: closes its group; waits until at most kPending groups still
// read shared memory (then the source may be reused, after a barrier), or until at most kPending are unfinished.
// tma_wait<0>() before the block ends.
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Plain bytes, no map, no swizzle (UBLKCP, UBLKRED: not target instructions by themselves). One thread; both addresses and
// `bytes` multiples of 16. Loads complete on `bar`, stores and reductions by tma_commit and tma_wait.
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
               "r"(bytes), "r"(bar)
               : "memory");
}
__device__ __forceinline__ void bulk_load_multicast(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar,
                                                    uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(bar), "h"(mask)
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes) : "memory");
}
// Adds FP32 elements to global memory.
__device__ __forceinline__ void bulk_add_f32(float* dst, uint32_t src, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_prefetch(const void* src, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(src), "r"(bytes) : "memory");
}
