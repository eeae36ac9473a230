// Causal attention forward with LSE, D = 128, BF16, Hopper. Clusters of two blocks share K and V by multicast; Q is held in
// registers.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

// ---------------------------------------------------------------- base
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__host__ __device__ __forceinline__ constexpr uint32_t align_up(uint32_t x, uint32_t n) { return (x + n - 1) & ~(n - 1); }
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// ---------------------------------------------------------------- mbarrier
__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// `remote`: address from cluster_map.
__device__ __forceinline__ void mbar_arrive_mapped(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool mbar_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity), "r"(0x989680u) : "memory");
  return done != 0;
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {}
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_async_smem() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ int load_shared(uint32_t addr) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(addr) : "memory");
  return value;
}

// ---------------------------------------------------------------- cluster
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_map(uint32_t addr, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(addr), "r"(rank));
  return remote;
}
__device__ __forceinline__ void dsmem_store_async(uint32_t remote, uint32_t value, uint32_t remote_bar) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(remote), "r"(value),
               "r"(remote_bar)
               : "memory");
}

// ---------------------------------------------------------------- roles
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}

// ---------------------------------------------------------------- TMA
__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void tma_load_hint(uint32_t dst, const CUtensorMap* map, uint32_t bar, uint64_t policy, int x,
                                              int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
      "l"(map), "r"(bar), "l"(policy), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, uint16_t mask, int x,
                                                   int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
      "l"(map), "r"(bar), "h"(mask), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_store_hint(const CUtensorMap* map, uint32_t src, uint64_t policy, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%3, %4}], [%1], %2;"
               ::"l"(map), "r"(src), "l"(policy), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---------------------------------------------------------------- wgmma
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kN>
__device__ __forceinline__ void pin(float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
// Matrix descriptors, 128-byte swizzle: only the low half (address, leading offset) varies, and adding to it never carries.
constexpr uint32_t kDescHigh = (1u << 30) | (1024u >> 4);
__device__ __forceinline__ uint64_t desc(uint32_t low) {
  uint64_t d;
  asm("mov.b64 %0, {%1, %2};" : "=l"(d) : "r"(low), "r"(kDescHigh));
  return d;
}
// The same in all lanes, made known to the compiler: descriptors then stay in uniform registers, and so do the additions.
__device__ __forceinline__ uint32_t uniform(uint32_t x) { return __shfl_sync(0xffffffffu, x, 0); }
// The mask is needed: in a cluster a shared address holds the block's rank in its high bits (24 and up), which would run into
// the leading offset.
__device__ __forceinline__ uint32_t low_k_major(uint32_t addr) { return ((addr & 0x3FFFFu) >> 4) | (1u << 16); }
__device__ __forceinline__ uint32_t low_mn_major(uint32_t addr, uint32_t next_box) {
  return ((addr & 0x3FFFFu) >> 4) | ((next_box >> 4) << 16);
}

#define WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG_16(d, i) WG_4(d, i), WG_4(d, i + 4), WG_4(d, i + 8), WG_4(d, i + 12)
#define WG_D32(d) WG_16(d, 0), WG_16(d, 16)
#define WG_D64(d) WG_16(d, 0), WG_16(d, 16), WG_16(d, 32), WG_16(d, 48)
#define WG_R32                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "      \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "      \
  "%26, %27, %28, %29, %30, %31"
#define WG_R64                                                        \
  WG_R32 ", %32, %33, %34, %35, %36, %37, "                           \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "      \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "      \
  "%62, %63"

template <int kTransB>
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WG_R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
      : WG_D64(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB)
      : "memory");
}
// 64 columns only: d[0 .. 31].
template <int kTransB>
__device__ __forceinline__ void wgmma_rs_n64(float (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WG_R32 "}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : WG_D32(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB)
      : "memory");
}

// ---------------------------------------------------------------- fragments
template <int kBytes = 128>
__host__ __device__ __forceinline__ constexpr uint32_t swizzle(uint32_t offset) {
  return offset ^ ((offset >> 3) & (kBytes - 16));
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// The first kCount accumulators; the rest of P is 0.
template <int kCount>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[32], const float (&d)[64]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) a[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
#pragma unroll
  for (int i = kCount / 2; i < 32; ++i) a[i] = 0;
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ void stmatrix_x4(uint32_t addr, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r0), "r"(r1), "r"(r2),
               "r"(r3)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t& r0, uint32_t& r1, uint32_t& r2, uint32_t& r3, uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(addr) : "memory");
}
// d (16 x 8) += A (16 x 16) B (16 x 8): one warp, only for the rare repetition of scores.
__device__ __forceinline__ void mma_16x8x16(float& d0, float& d1, float& d2, float& d3, const uint32_t (&a)[4], uint32_t b0,
                                            uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void store_box(uint32_t box, const float* d, int t) {
  const int row = t / 32 * 16 + t % 16;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float* v = d + 4 * j;
    stmatrix_x4(box + swizzle(row * 128 + (j + t % 32 / 16) * 16), pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
}

// ---------------------------------------------------------------- the kernel
constexpr int kD = 128;
constexpr int kKeys = 128;                      // keys of a block
constexpr int kQueries = 256;                   // queries of a tile, which is a cluster's
constexpr int kSection = 8;                     // heads worked on together (L2)
constexpr int kStages = 5;                      // K and V blocks in one ring
constexpr uint32_t kBox = 128 * 128;            // 128 keys, 64 columns
constexpr uint32_t kHalfBox = 64 * 128;         // 64 queries, 64 columns
constexpr uint32_t kTileBytes = 2 * kBox;       // a K or V block; also the 128 queries of a block
constexpr uint32_t kOffQ = 0;                   // 2 buffers, each: consumer 0: 2 half boxes, consumer 1: 2 half boxes
constexpr uint32_t kOffKV = 2 * kTileBytes;
constexpr float kC = 0.08838834764831845f * 1.4426950408889634f;  // log2(e) / sqrt(128)
constexpr float kLimit = 1099511627776.0f;      // 2^40: sums of probabilities above it call for a new reference
constexpr float kLn2 = 0.6931471805599453f;

// Barriers, byte offsets from the aligned base of shared memory.
constexpr uint32_t kBars = (2 + kStages) * kTileBytes;
constexpr uint32_t kFull = kBars;                       // kStages: data of both halves
constexpr uint32_t kEmpty = kFull + 8 * kStages;        // kStages: 8 consumer warps of each of the two blocks
constexpr uint32_t kQFull = kEmpty + 8 * kStages;       // 2: Q has come
constexpr uint32_t kQEmpty = kQFull + 16;               // 2: one thread of each consumer
constexpr uint32_t kSched = kQEmpty + 16;               // 4: number of the tile has come
constexpr uint32_t kIds = kSched + 32;                  // 4 numbers of tiles, 4 bytes each
constexpr uint32_t kSmem = kBars + 256 + 1024;

__device__ uint32_t g_counter;  // set to 0 by each call, before the kernel

struct Ring {
  uint32_t slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++slot == kStages) {
      slot = 0;
      phase ^= 1;
    }
  }
};

struct Tile {
  int head, j;
};
// Sections of kSection heads; in a section the longest tiles first.
__device__ __forceinline__ Tile decode(int id, int levels, int heads) {
  const int per = kSection * levels;
  const int section = id / per;
  const int rest = id - section * per;
  const int count = min(kSection, heads - section * kSection);
  const int level = rest / count;
  return Tile{section * kSection + (rest - level * count), levels - 1 - level};
}

// Over the first 8 kJ columns.
template <int kJ>
__device__ __forceinline__ void row_max(const float (&s)[64], float& a, float& b) {
  float a0 = s[0], a1 = s[1], b0 = s[2], b1 = s[3];
#pragma unroll
  for (int j = 1; j < kJ; ++j) {
    a0 = fmaxf(a0, s[4 * j]);
    a1 = fmaxf(a1, s[4 * j + 1]);
    b0 = fmaxf(b0, s[4 * j + 2]);
    b1 = fmaxf(b1, s[4 * j + 3]);
  }
  a = quad_max(fmaxf(a0, a1));
  b = quad_max(fmaxf(b0, b1));
}

// s = exp2(s kC + c) in place, first 8 kJ columns; x, y: this thread's sums for its two rows.
template <int kJ>
__device__ __forceinline__ void exponentials(float (&s)[64], const float (&c)[2], float& x, float& y) {
  s[0] = exp2_fast(fmaf(s[0], kC, c[0]));
  s[1] = exp2_fast(fmaf(s[1], kC, c[0]));
  s[2] = exp2_fast(fmaf(s[2], kC, c[1]));
  s[3] = exp2_fast(fmaf(s[3], kC, c[1]));
  float x0 = s[0], x1 = s[1], y0 = s[2], y1 = s[3];
#pragma unroll
  for (int j = 1; j < kJ; ++j) {
    s[4 * j] = exp2_fast(fmaf(s[4 * j], kC, c[0]));
    s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], kC, c[0]));
    s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], kC, c[1]));
    s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], kC, c[1]));
    x0 += s[4 * j];
    x1 += s[4 * j + 1];
    y0 += s[4 * j + 2];
    y1 += s[4 * j + 3];
  }
  x = x0 + x1;
  y = y0 + y1;
}

// Q of this consumer (64 rows, two half boxes at `addr`) as A operands of 8 products. No product may be in flight. A warp
// reads its own 16 rows only.
__device__ __forceinline__ void load_q(uint32_t (&q)[32], uint32_t addr, int t) {
  const uint32_t lane = t % 32;
  const uint32_t row = (t / 32 * 16 + lane % 16) * 128 + lane / 16 * 16;
#pragma unroll
  for (int i = 0; i < 8; ++i)
    ldmatrix_x4(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3], addr + i / 4 * kHalfBox + swizzle(row + i % 4 * 32));
}

// S (64 x 128, or its first 64 columns) = Q K^T; q: registers from load_q; dk: low descriptor of the K block.
template <bool kHalf>
__device__ __forceinline__ void issue_scores(float (&s)[64], const uint32_t (&q)[32], uint32_t dk) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint64_t b = desc(dk + (i / 4 * (kBox >> 4) + i % 4 * 2));
    if constexpr (kHalf) {
      wgmma_rs_n64<0>(s, q + 4 * i, b, i > 0);
    } else {
      wgmma_rs<0>(s, q + 4 * i, b, i > 0);
    }
  }
  wgmma_commit();
}
// O (64 x 128) = P V + (accumulate ? O : 0), over the first 16 kProducts keys; dv: low descriptor of the V block. kTurn > 0:
// the named barrier that gives the turn away, two products before the last one, so that the other consumer's products follow
// without a gap.
template <int kTurn, int kProducts>
__device__ __forceinline__ void issue_output(float (&o)[64], const uint32_t (&p)[32], uint32_t dv, int accumulate) {
#pragma unroll
  for (int i = 0; i < kProducts; ++i) {
    wgmma_rs<1>(o, p + 4 * i, desc(dv + i * 128), i > 0 ? 1 : accumulate);
    if (kTurn > 0 && i == kProducts - 3) named_arrive(kTurn, 256);
  }
  wgmma_commit();
}

// Rare: the scores of one warp's 16 rows once more, from shared memory, without the other warps.
__device__ __forceinline__ void repeat_scores(float (&s)[64], uint32_t q, uint32_t k, int t) {
  const uint32_t lane = t % 32;
  const uint32_t q_row = (t / 32 * 16 + lane % 16) * 128 + lane / 16 * 16;
  const uint32_t k_row = (lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16;
#pragma unroll
  for (int i = 0; i < 64; ++i) s[i] = 0.0f;
#pragma unroll 1
  for (int i = 0; i < 8; ++i) {  // 16 of D each
    const uint32_t column = i % 4 * 32;
    const uint32_t k_at = k + i / 4 * kBox + swizzle(k_row + column);  // further rows: multiples of 2048, not swizzled
    uint32_t a[4];
    ldmatrix_x4(a[0], a[1], a[2], a[3], q + i / 4 * kHalfBox + swizzle(q_row + column));
#pragma unroll
    for (int j = 0; j < 16; j += 2) {  // 16 keys
      uint32_t b[4];
      ldmatrix_x4(b[0], b[1], b[2], b[3], k_at + j * 1024);
      mma_16x8x16(s[4 * j], s[4 * j + 1], s[4 * j + 2], s[4 * j + 3], a, b[0], b[1]);
      mma_16x8x16(s[4 * j + 4], s[4 * j + 5], s[4 * j + 6], s[4 * j + 7], a, b[2], b[3]);
    }
  }
}

// `give_back`: in lanes 0 and 1, the empty barriers of block 0 and 1.
__device__ __forceinline__ void release(uint32_t give_back, uint32_t slot, int t) {
  if (t % 32 < 2) mbar_arrive_mapped(give_back + 8 * slot);
}

// One block of keys: scores of block n - 1, P V of block n, then P of block n - 1. The exponentials are relative to the
// reference c of the row, which need not be the maximum: BF16 and FP32 lose nothing as long as nothing overflows. The sums
// tell whether it has grown too small; then this warp repeats its scores and takes the true maximum. P is packed after the
// wait for P V: writing registers that feed a product while another one is in flight makes ptxas serialize all of them.
// kFirst: O starts here, and kProducts is 4 if only the first 64 keys of the diagonal block count.
template <int kW, bool kFirst, int kProducts>
__device__ __forceinline__ void step(float (&s)[64], float (&o)[64], uint32_t (&p)[32], const uint32_t (&q)[32], float (&c)[2],
                                     float (&l)[2], Ring& ring, uint32_t smem, uint32_t tiles, uint32_t give_back, int t) {
  const Ring k = ring;
  ring.next();
  const Ring v = ring;
  ring.next();
  const uint32_t dk = uniform(low_k_major(smem + kOffKV + k.slot * kTileBytes));
  const uint32_t dv = uniform(low_mn_major(smem + kOffKV + v.slot * kTileBytes, kBox));
  mbar_wait(smem + kFull + 8 * k.slot, k.phase);
  mbar_wait(smem + kFull + 8 * v.slot, v.phase);
  named_sync(1 + kW, 256);
  wgmma_fence();
  issue_scores<false>(s, q, dk);
  issue_output<2 - kW, kProducts>(o, p, dv, kFirst ? 0 : 1);

  wgmma_wait<1>();  // scores
  pin(s);
  float alpha0 = 1.0f, alpha1 = 1.0f, x, y;
  exponentials<16>(s, c, x, y);
  const bool rescale = __any_sync(0xffffffffu, !(x <= kLimit && y <= kLimit));
  if (__builtin_expect(rescale, 0)) {
    repeat_scores(s, smem + kOffQ + kW * kBox + (tiles & 1) * kTileBytes, smem + kOffKV + k.slot * kTileBytes, t);
    float a, b;
    row_max<16>(s, a, b);
    const float n0 = fminf(c[0], -a * kC), n1 = fminf(c[1], -b * kC);
    alpha0 = exp2_fast(n0 - c[0]);
    alpha1 = exp2_fast(n1 - c[1]);
    c[0] = n0;
    c[1] = n1;
    l[0] *= alpha0;
    l[1] *= alpha1;
    exponentials<16>(s, c, x, y);
  }
  l[0] += x;
  l[1] += y;
  release(give_back, k.slot, t);
  pin(s);  // the exponentials come before the wait for P V

  wgmma_wait<0>();
  pin(o);
  pin(s);
  if (__builtin_expect(rescale, 0)) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      o[4 * j] *= alpha0;
      o[4 * j + 1] *= alpha0;
      o[4 * j + 2] *= alpha1;
      o[4 * j + 3] *= alpha1;
    }
  }
  pack_fragments<64>(p, s);
  release(give_back, v.slot, t);
}

// O / l to the staging (the Q buffer of the tile, which is in registers; each warp writes over its own rows of Q) and on its
// way to global memory; LSE.
__device__ __forceinline__ void epilogue(float (&o)[64], const float (&c)[2], const float (&l)[2], uint32_t stage, int w, int t,
                                         int row, float* lse, const CUtensorMap* map_o) {
  const float l0 = quad_sum(l[0]), l1 = quad_sum(l[1]);
  const float i0 = 1.0f / l0, i1 = 1.0f / l1;
  if (t % 4 == 0) {
    float* out = lse + row + t / 32 * 16 + t % 32 / 4;
    out[0] = (log2_fast(l0) - c[0]) * kLn2;
    out[8] = (log2_fast(l1) - c[1]) * kLn2;
  }
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    o[4 * j] *= i0;
    o[4 * j + 1] *= i0;
    o[4 * j + 2] *= i1;
    o[4 * j + 3] *= i1;
  }
  __syncwarp();
  store_box(stage, o, t);
  store_box(stage + kHalfBox, o + 32, t);
  fence_async_smem();
  named_sync(3 + w, 128);
  if (t == 0) {
    const uint64_t once = policy_evict_first();
    tma_store_hint(map_o, stage, once, 0, row);
    tma_store_hint(map_o, stage + kHalfBox, once, 64, row);
    tma_commit();
  }
}

// Consumer kW of a block. Of the four groups of 64 queries of a tile, block 0 has 0 and 3, block 1 has 1 and 2; so consumer
// 0 does not need the topmost block of keys (2 j + 1), and consumer 1 does. kHalf: the group is 0 or 2, the first half of the
// rows of its diagonal block, and needs only the first 64 keys there; so consumer kW of block kW. Order of the ring, for the
// key blocks n of a tile from the top down: K(top), V(0) of the tile before, K(top - 1), V(top), ... K(0), V(1).
template <int kW, bool kHalf>
__device__ __forceinline__ void consume(const CUtensorMap* map_o, float* lse, int seq, int heads, uint32_t smem) {
  constexpr int kGroup = 2 * kW + (kHalf ? 0 : 1);
  constexpr int kDiagonal = kHalf ? 8 : 16;       // eights of columns of the diagonal block
  constexpr int kMasked = kHalf ? 0 : 8;          // first of the eight eights that the diagonal crosses
  const int t = static_cast<int>(threadIdx.x) % 128;
  const int levels = seq / kQueries;
  const uint32_t give_back = cluster_map(smem + kEmpty, static_cast<uint32_t>(t & 1));

  if (kW == 1) named_arrive(1, 256);  // the first turn is consumer 0's

  Ring ring;
  float s[64], o[64];
  uint32_t p[32], q[32];
  float c[2], l[2];  // reference of each row: -m log2(e) / sqrt(D); sum
  uint32_t tiles = 0;  // number of this tile among the cluster's

  mbar_wait(smem + kSched, 0);
  int id = warp_uniform(load_shared(smem + kIds));
  mbar_wait(smem + kFull, 0);
  if constexpr (kW == 1) {
    mbar_wait(smem + kQFull, 0);
    load_q(q, smem + kOffQ + kW * kBox, t);
    wgmma_fence();
    issue_scores<kHalf>(s, q, uniform(low_k_major(smem + kOffKV)));
    wgmma_wait<0>();
    pin(s);
  }
  release(give_back, 0, t);
  ring.next();

  while (true) {
    const Tile tile = decode(id, levels, heads);
    const int row = tile.head * seq + tile.j * kQueries + kGroup * 64;
    const int top = 2 * tile.j + kW;

    uint32_t skipped = 0, skipped_phase = 0;
    if constexpr (kW == 0) {  // first scores; consumer 1 has them already, of the block above
      const Ring k = ring;
      ring.next();
      skipped = ring.slot;
      skipped_phase = ring.phase;
      ring.next();
      const uint32_t dk = uniform(low_k_major(smem + kOffKV + k.slot * kTileBytes));
      mbar_wait(smem + kQFull + 8 * (tiles & 1), (tiles >> 1) & 1);
      load_q(q, smem + kOffQ + kW * kBox + (tiles & 1) * kTileBytes, t);
      mbar_wait(smem + kFull + 8 * k.slot, k.phase);
      named_sync(1, 256);
      wgmma_fence();
      issue_scores<kHalf>(s, q, dk);
      named_arrive(2, 256);
      wgmma_wait<0>();
      pin(s);
      release(give_back, k.slot, t);
    }

    // Diagonal block: the only one with a mask. Each row has at least its own key.
    {
      const int d = t / 32 * 16 + t % 32 / 4 - t % 4 * 2;  // row minus column, both within the 64 x 64 on the diagonal
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int j = kMasked + i;
        if (8 * i > d) s[4 * j] = -INFINITY;
        if (8 * i + 1 > d) s[4 * j + 1] = -INFINITY;
        if (8 * i > d + 8) s[4 * j + 2] = -INFINITY;
        if (8 * i + 1 > d + 8) s[4 * j + 3] = -INFINITY;
      }
    }
    row_max<kDiagonal>(s, c[0], c[1]);
    c[0] *= -kC;
    c[1] *= -kC;
    exponentials<kDiagonal>(s, c, l[0], l[1]);
    pack_fragments<4 * kDiagonal>(p, s);

    if constexpr (kW == 0) {  // V of the block above: not needed
      mbar_wait(smem + kFull + 8 * skipped, skipped_phase);
      release(give_back, skipped, t);
    }
    if (t == 0 && tiles > 0) {  // O of the tile before has left its Q buffer
      tma_wait_read<0>();
      mbar_arrive(smem + kQEmpty + 8 * ((tiles & 1) ^ 1));
    }

    // P V of block n, scores of block n - 1
    if (kW == 1 || top > 0) {
      step<kW, true, kHalf ? 4 : 8>(s, o, p, q, c, l, ring, smem, tiles, give_back, t);
#pragma unroll 1
      for (int n = top - 1; n > 0; --n) step<kW, false, 8>(s, o, p, q, c, l, ring, smem, tiles, give_back, t);
    }

    // Last P V of this tile. Consumer 1 also issues the first scores of the next one (of any data, and not used, if there
    // is none); consumer 0 hands back the block of keys that it does not need.
    const uint32_t stage = smem + kOffQ + kW * kBox + (tiles & 1) * kTileBytes;
    ++tiles;
    mbar_wait(smem + kSched + 8 * (tiles & 3), (tiles >> 2) & 1);
    const int next = warp_uniform(load_shared(smem + kIds + 4 * (tiles & 3)));
    const Ring k = ring;
    if (next >= 0) ring.next();
    const Ring v = ring;
    ring.next();
    const uint32_t dv = uniform(low_mn_major(smem + kOffKV + v.slot * kTileBytes, kBox));
    if constexpr (kW == 0) {
      mbar_wait(smem + kFull + 8 * v.slot, v.phase);
      named_sync(1, 256);
      wgmma_fence();
      issue_output<0, 8>(o, p, dv, top != 0);
      named_arrive(2, 256);
      wgmma_wait<0>();
      pin(o);
      release(give_back, v.slot, t);
      if (next >= 0) {
        mbar_wait(smem + kFull + 8 * k.slot, k.phase);
        release(give_back, k.slot, t);
      }
      epilogue(o, c, l, stage, kW, t, row, lse, map_o);
      if (next < 0) break;
    } else {
      const uint32_t dk_next = uniform(low_k_major(smem + kOffKV + k.slot * kTileBytes));
      if (next >= 0) mbar_wait(smem + kQFull + 8 * (tiles & 1), (tiles >> 1) & 1);
      load_q(q, smem + kOffQ + kW * kBox + (tiles & 1) * kTileBytes, t);  // no product is in flight here
      if (next >= 0) mbar_wait(smem + kFull + 8 * k.slot, k.phase);
      mbar_wait(smem + kFull + 8 * v.slot, v.phase);
      named_sync(2, 256);
      wgmma_fence();
      issue_output<0, 8>(o, p, dv, 1);
      issue_scores<kHalf>(s, q, dk_next);
      if (next >= 0) named_arrive(1, 256);
      wgmma_wait<1>();  // O is complete
      pin(o);
      release(give_back, v.slot, t);
      epilogue(o, c, l, stage, kW, t, row, lse, map_o);  // while the next scores run
      wgmma_wait<0>();
      pin(s);
      if (next < 0) break;
      release(give_back, k.slot, t);
    }
    id = next;
  }
  if (t == 0) tma_wait<0>();
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int seq,
              int heads, uint32_t* counter) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const int rank = warp_uniform(static_cast<int>(cluster_rank()));
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);

  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbar_init(smem + kFull + 8 * i, 1);
      mbar_init(smem + kEmpty + 8 * i, 16);
    }
    for (int i = 0; i < 2; ++i) {
      mbar_init(smem + kQFull + 8 * i, 1);
      mbar_init(smem + kQEmpty + 8 * i, 2);
    }
    for (int i = 0; i < 4; ++i) mbar_init(smem + kSched + 8 * i, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  cluster_sync();

  if (role == 0) {
    // ------------------------------------------------------------ producer
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      tma_prefetch_map(&map_q);
      tma_prefetch_map(&map_k);
      tma_prefetch_map(&map_v);
      tma_prefetch_map(&map_o);
      Ring ring;
      int next = static_cast<int>(blockIdx.x) / 2;  // block 0 of the cluster decides
      int pending = -1;  // row of the V block that is still to be loaded for the tile before

      // This block's half of a K or V block, to both blocks.
      auto load = [&](const CUtensorMap* map, int row) {
        const uint32_t bar = smem + kFull + 8 * ring.slot;
        mbar_wait(smem + kEmpty + 8 * ring.slot, ring.phase ^ 1);
        mbar_expect_tx(bar, kTileBytes);
        tma_load_multicast(smem + kOffKV + ring.slot * kTileBytes + static_cast<uint32_t>(rank) * kBox, map, bar,
                           static_cast<uint16_t>(3), rank * 64, row);
        ring.next();
      };

      for (uint32_t it = 0;; ++it) {
        // The number of the tile, to all in both blocks. Four places are enough without an "empty" barrier: a tile has at
        // least four blocks in the ring, and this thread is at most kStages blocks ahead of the slowest consumer.
        const uint32_t bar = smem + kSched + 8 * (it & 3);
        const int levels = seq / kQueries;
        mbar_expect_tx(bar, 4);
        if (rank == 0) {
          const uint32_t value = static_cast<uint32_t>(next < heads * levels ? next : -1);
          const uint32_t place = smem + kIds + 4 * (it & 3);
          dsmem_store_async(cluster_map(place, 0), value, cluster_map(bar, 0));
          dsmem_store_async(cluster_map(place, 1), value, cluster_map(bar, 1));
        }
        mbar_wait(bar, (it >> 2) & 1);
        const int id = load_shared(smem + kIds + 4 * (it & 3));
        if (id < 0) break;

        const Tile tile = decode(id, levels, heads);
        const int base = tile.head * seq;
        const int top = 2 * tile.j + 1;
        {
          const uint64_t once = policy_evict_first();
          const uint32_t slot = it & 1;
          const uint32_t q_bar = smem + kQFull + 8 * slot, dst = smem + kOffQ + slot * kTileBytes;
          const int row0 = base + tile.j * kQueries + rank * 64;
          const int row1 = base + tile.j * kQueries + (3 - rank) * 64;
          mbar_wait(smem + kQEmpty + 8 * slot, ((it >> 1) & 1) ^ 1);
          mbar_expect_tx(q_bar, kTileBytes);
          tma_load_hint(dst, &map_q, q_bar, once, 0, row0);
          tma_load_hint(dst + kHalfBox, &map_q, q_bar, once, 64, row0);
          tma_load_hint(dst + 2 * kHalfBox, &map_q, q_bar, once, 0, row1);
          tma_load_hint(dst + 3 * kHalfBox, &map_q, q_bar, once, 64, row1);
        }
        load(&map_k, base + top * kKeys);
        if (pending >= 0) load(&map_v, pending);
        const int claim = min(2, top - 1);  // early enough for the answer to be here at the end of the tile
#pragma unroll 1
        for (int n = top - 1; n >= 0; --n) {
          if (n == claim && rank == 0) next = static_cast<int>(gridDim.x / 2 + atomicAdd(counter, 1u));
          load(&map_k, base + n * kKeys);
          load(&map_v, base + (n + 1) * kKeys);
        }
        pending = base;
      }
      if (pending >= 0) load(&map_v, pending);
    }
    __syncwarp();
  } else {
    // ------------------------------------------------------------ consumers
    setmaxnreg_inc<240>();
    if (role == 1) {
      if (rank == 0) {
        consume<0, true>(&map_o, lse, seq, heads, smem);
      } else {
        consume<0, false>(&map_o, lse, seq, heads, smem);
      }
    } else {
      if (rank == 0) {
        consume<1, false>(&map_o, lse, seq, heads, smem);
      } else {
        consume<1, true>(&map_o, lse, seq, heads, smem);
      }
    }
    __syncwarp();
  }
  cluster_sync();  // no block leaves while the other may still arrive at its barriers or write into it
}

// ---------------------------------------------------------------- host
inline CUtensorMap make_matrix_map(const void* data, int64_t rows, int64_t columns, uint32_t box_rows,
                                   uint32_t box_columns) {
  cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
  cuuint32_t box[2] = {box_columns, box_rows};
  cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides, box, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, " << kD << "]";
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2), rows = heads * seq;
  if (rows == 0) return;
  if (seq % kQueries != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kQueries;
  if (rows > 0x7fffffff) TVM_FFI_THROW(RuntimeError) << "too many rows";
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  const CUtensorMap map_q = make_matrix_map(Q.data_ptr(), rows, kD, 64, 64);
  const CUtensorMap map_k = make_matrix_map(K.data_ptr(), rows, kD, 128, 64);
  const CUtensorMap map_v = make_matrix_map(V.data_ptr(), rows, kD, 128, 64);
  const CUtensorMap map_o = make_matrix_map(O.data_ptr(), rows, kD, 64, 64);

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "number of SMs");
  const int64_t total = heads * (seq / kQueries);
  const int64_t clusters = total < sms / 2 ? total : sms / 2;

  void* counter = nullptr;
  check(cudaGetSymbolAddress(&counter, g_counter), "address of the counter");
  check(cudaMemsetAsync(counter, 0, sizeof(uint32_t), stream), "resetting the counter");
  check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmem)),
        "dynamic shared memory");
  attention<<<static_cast<unsigned>(2 * clusters), 384, kSmem, stream>>>(
      map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()), static_cast<int>(seq), static_cast<int>(heads),
      static_cast<uint32_t*>(counter));
  check(cudaGetLastError(), "launching attention");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
