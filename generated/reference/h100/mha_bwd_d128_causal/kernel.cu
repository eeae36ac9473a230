// MHA backward, head dimension 128, bf16, causal (lower-triangular mask), for sm_90a.
//
//   run(Q, K, V, O, dO [B,H,S,128] bf16, L [B,H,S] fp32 natural-log LSE  ->  dQ, dK, dV [B,H,S,128] bf16)
//   P = exp(QK^T/sqrt(128) - L);  delta = rowsum(dO*O);  dS = P * (dO V^T - delta)
//   dV = P^T dO;  dK = dS^T Q / sqrt(128);  dQ = dS K / sqrt(128)
//
// Schedule: three kernels on one stream, no atomics, so the result is bitwise reproducible.
//   prepare  delta and L*log2(e) into a scratch buffer (2 x B*H*S fp32).
//   dkdv     one CTA per (b, h, 128 keys), loops over 64-query tiles. It works on the transposed scores (M = keys):
//              S^T = K Q^T, dP^T = V dO^T (both operands in shared memory), then dV += P^T dO, dK += dS^T Q with the
//              A operand straight from the accumulator registers and dO / Q read as "MN-major" B from the same tiles.
//   dq       one CTA per (b, h, 128 queries), loops over 128-key tiles: S = Q K^T, dP = dO V^T, dQ += dS K.
// This recomputes S and dP once more than a fused kernel (7 GEMMs, not 5), the price of not needing atomics for dQ.
//
// Each CTA has one producer warp (TMA) and two consumer warpgroups that own 64 rows each. Consumers keep the wgmma queue
// filled: the exponential runs while dP is computed, and the last product of a tile while the next tile's scores start.
// Under a causal mask, tiles above the diagonal are never loaded (for one 64x64 half tile: loaded but not computed) and only
// tiles on the diagonal are masked.
//
// Shared memory: dkdv 64 KB (K, V) + 4 stages x 33 KB (Q, dO, L, delta) = 196 KB;
//                dq   64 KB (Q, dO) + ring of 5 x 32 KB (K, V alternating) = 224 KB. One CTA per SM.
// Tiles are stored as two halves of 64 columns (128-byte rows, 128-byte swizzle); TMA boxes are 64 x 64 elements (8 KB).
//
// PTX rules used (PTX ISA): "Asynchronous Warpgroup Level Matrix Instructions" (register fragments, matrix descriptor,
// canonical layouts of K-major and MN-major operands, wgmma.fence/commit_group/wait_group), "cp.async.bulk.tensor",
// "cp.async.bulk", "mbarrier.try_wait" (phase parity), "setmaxnreg".
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr bool kCausal = true;

constexpr int kD = 128;
constexpr int kBlock = 128;                       // rows of the resident tile of a CTA, 64 per consumer warpgroup
constexpr int kThreads = 384;                     // producer warpgroup + two consumer warpgroups
constexpr int kConsumerWarps = 8;
constexpr uint32_t kRowBytes = 128;               // one swizzled row: 64 bf16
constexpr uint32_t kBoxBytes = 64 * kRowBytes;    // one TMA box: 64 rows x 64 columns
constexpr uint32_t kTile64 = 2 * kBoxBytes;       // 64 x 128 elements
constexpr uint32_t kTile128 = 4 * kBoxBytes;      // 128 x 128 elements
constexpr float kScale = 0.08838834764831845f;    // 1/sqrt(128)
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kScaleLog2 = kScale * kLog2e;

constexpr int kQueryTile = 64;                    // dkdv: queries per iteration
constexpr int kKvStages = 4;
constexpr uint32_t kStatBytes = kQueryTile * sizeof(float);
constexpr uint32_t kKvStageBytes = 2 * kTile64 + 2 * 512;  // Q, dO, L, delta; padded: stages stay 1024-aligned
constexpr int kRingSlots = 5;                     // dq: K0 V0 K1 V1 ... pass through five 32 KB slots
constexpr uint32_t kBarrierBytes = 128;
constexpr uint32_t kKvSmem = 1024 + 2 * kTile128 + kKvStages * kKvStageBytes + kBarrierBytes;
constexpr uint32_t kDqSmem = 1024 + 2 * kTile128 + kRingSlots * kTile128 + kBarrierBytes;
static_assert(kKvStageBytes % 1024 == 0 && kKvSmem <= 232448 && kDqSmem <= 232448, "shared memory layout");

// ---------------------------------------------------------------- barriers and TMA
__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ uint8_t* aligned_smem() {  // the swizzle pattern repeats every 1024 bytes of the address
  extern __shared__ uint8_t smem_raw[];
  return smem_raw + (1024 - smem_u32(smem_raw) % 1024) % 1024;
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// Returns once the phase with this parity has completed (a fresh barrier counts as "parity 1 completed").
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(bar), "r"(parity)
        : "memory");
  }
}
// One 64 x 64 box of a [rows, 128] tensor.
__device__ __forceinline__ void tma_box(uint32_t dst, const CUtensorMap* map, int col, int row, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(col), "r"(row), "r"(bar)
      : "memory");
}
// kRows x 128 elements as two column halves, each kRows rows of 128 bytes.
template <int kRows>
__device__ __forceinline__ void tma_tile(uint32_t dst, const CUtensorMap* map, int row, uint32_t bar) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int r = 0; r < kRows; r += 64) tma_box(dst + (half * kRows + r) * kRowBytes, map, half * 64, row + r, bar);
}
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst), "l"(src),
               "r"(bytes), "r"(bar)
               : "memory");
}

// Position in a ring of buffers. `phase` flips at each wrap: consumers wait for full[slot] with `phase`, the producer for
// empty[slot] with `phase ^ 1`, which passes at once in the first round.
template <int kSlots>
struct Ring {
  int slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// Barrier block: [0] resident tile, [1 .. n] full, [n+1 .. 2n] empty.
template <int kSlots>
struct Barriers {
  uint32_t base;
  __device__ __forceinline__ uint32_t resident() const { return base; }
  __device__ __forceinline__ uint32_t full(int s) const { return base + 8 * (1 + s); }
  __device__ __forceinline__ uint32_t empty(int s) const { return base + 8 * (1 + kSlots + s); }
  __device__ __forceinline__ void init() const {
    if (threadIdx.x == 0) {
      mbar_init(resident(), 1);
      for (int s = 0; s < kSlots; ++s) {
        mbar_init(full(s), 1);
        mbar_init(empty(s), kConsumerWarps);
      }
      // The TMA unit (async proxy) must see initialized barriers.
      asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }
  // One arrival per warp: a warp's own wait_group says nothing about the other three warps of its warpgroup.
  __device__ __forceinline__ void release(int s) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) mbar_arrive(empty(s));
  }
};

// ---------------------------------------------------------------- wgmma
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Ties registers to this point, so that the compiler cannot read an accumulator before the wait above it.
template <int kN>
__device__ __forceinline__ void pin(float (&r)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// 128-byte swizzle (layout type 1 in bits 62-63), 1024 bytes between groups of eight rows (SBO, bits 32-45). LBO (bits 16-29)
// matters for MN-major operands only: the distance between 64-element column halves.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo) {
  return (1ull << 62) | (static_cast<uint64_t>(1024 >> 4) << 32) | (static_cast<uint64_t>(lbo >> 4) << 16) | ((addr & 0x3FFFF) >> 4);
}

#define F8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define F32(d, i) F8(d, i), F8(d, i + 8), F8(d, i + 16), F8(d, i + 24)
#define REGS32                                                                                                             \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define REGS64                                                                                                           \
  REGS32                                                                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, " \
  "%55, %56, %57, %58, %59, %60, %61, %62, %63"

// D (64 x 64 or 64 x 128) = or += A (64 x 16, K-major) * B^T (N x 16, K-major), both in shared memory.
__device__ __forceinline__ void wgmma_ss(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGS32 "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : F32(d, 0)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}
__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : F32(d, 0), F32(d, 32)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}
// D (64 x 128) += A (64 x 16, registers) * B (16 x 128, MN-major in shared memory: trailing 1).
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGS64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n}\n"
      : F32(d, 0), F32(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
      : "memory");
}

// D = A B^T over the 128 columns of two tiles: 16 columns are 32 bytes inside the swizzle atom, 64 columns one half.
template <int kAcc>
__device__ __forceinline__ void gemm_rows(float (&d)[kAcc], uint32_t a, uint32_t a_half, uint32_t b, uint32_t b_half) {
  const uint64_t da = make_desc(a, 16), db = make_desc(b, 16);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kD / 16; ++k)
    wgmma_ss(d, da + ((k / 4) * a_half + (k % 4) * 32) / 16, db + ((k / 4) * b_half + (k % 4) * 32) / 16, k > 0);
  wgmma_commit();
}
// D += A B, with A from registers (kSteps x 16 columns) and the rows of tile B as the summed dimension.
template <int kSteps>
__device__ __forceinline__ void gemm_regs(float (&d)[64], const uint32_t (&a)[4 * kSteps], uint32_t b, uint32_t b_half) {
  const uint64_t db = make_desc(b, b_half);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) wgmma_rs(d, a + 4 * k, db + k * 16 * kRowBytes / 16);
  wgmma_commit();
}

// ---------------------------------------------------------------- register fragments
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack2(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}
// An accumulator of 64 x N is, eight columns at a time, already in the layout of wgmma's A fragments: d[4j..4j+3] holds
// (row g: col 8j+2t, +1), (row g+8: the same); a k-step of 16 columns takes two such groups in this order.
template <int kN>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[kN / 2], const float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) a[i] = pack2(d[2 * i], d[2 * i + 1]);
}
// Writes a warpgroup's 64 x 128 accumulator; `row` is this thread's first row.
__device__ __forceinline__ void store_rows(__nv_bfloat16* out, int64_t row, int t, const float (&d)[64], float scale) {
  uint32_t* r0 = reinterpret_cast<uint32_t*>(out + row * kD) + t;
  uint32_t* r8 = r0 + 8 * kD / 2;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    r0[4 * j] = pack2(d[4 * j] * scale, d[4 * j + 1] * scale);
    r8[4 * j] = pack2(d[4 * j + 2] * scale, d[4 * j + 3] * scale);
  }
}

// ---------------------------------------------------------------- kernels
// 16 lanes per row, 8 elements per lane.
__global__ void __launch_bounds__(256) prepare_kernel(const uint4* o, const uint4* d_o, const float* lse, float* lse2, float* delta) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 16 + threadIdx.x / 16;
  const int lane = threadIdx.x % 16;
  const uint4 a = o[row * 16 + lane], b = d_o[row * 16 + lane];
  const __nv_bfloat162* pa = reinterpret_cast<const __nv_bfloat162*>(&a);
  const __nv_bfloat162* pb = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pa[i]), y = __bfloat1622float2(pb[i]);
    sum += x.x * y.x + x.y * y.y;
  }
#pragma unroll
  for (int m = 8; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) {
    delta[row] = sum;
    lse2[row] = lse[row] * kLog2e;  // the main kernels work in powers of two
  }
}

__global__ void __launch_bounds__(kThreads, 1)
dkdv_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
            const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do, const float* lse2,
            const float* delta, __nv_bfloat16* dk_out, __nv_bfloat16* dv_out, int seq) {
  uint8_t* smem = aligned_smem();
  const uint32_t s_k = smem_u32(smem), s_v = s_k + kTile128, s_stage = s_v + kTile128;
  const Barriers<kKvStages> bars{s_stage + kKvStages * kKvStageBytes};
  bars.init();

  const int blocks = seq / kBlock;
  const int head_row = static_cast<int>(blockIdx.x / blocks) * seq;  // first row of this (b, h)
  const int key0 = static_cast<int>(blockIdx.x % blocks) * kBlock;   // causal: the longest loops (low keys) start first
  const int first_query = kCausal ? key0 : 0;
  const int tiles = (seq - first_query) / kQueryTile;
  const int wg = threadIdx.x / 128;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    if (threadIdx.x == 0) {
      mbar_expect(bars.resident(), 2 * kTile128);
      tma_tile<128>(s_k, &map_k, head_row + key0, bars.resident());
      tma_tile<128>(s_v, &map_v, head_row + key0, bars.resident());
      Ring<kKvStages> ring;
      for (int i = 0; i < tiles; ++i, ring.next()) {
        const uint32_t full = bars.full(ring.slot), dst = s_stage + ring.slot * kKvStageBytes;
        const int row = head_row + first_query + i * kQueryTile;
        mbar_wait(bars.empty(ring.slot), ring.phase ^ 1);
        mbar_expect(full, 2 * kTile64 + 2 * kStatBytes);
        tma_tile<64>(dst, &map_q, row, full);
        bulk_load(dst + 2 * kTile64, lse2 + row, kStatBytes, full);
        tma_tile<64>(dst + kTile64, &map_do, row, full);
        bulk_load(dst + 2 * kTile64 + 512, delta + row, kStatBytes, full);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
  const int half = wg - 1;                                          // which 64 keys of the block
  const int g = (threadIdx.x % 128) / 32 * 16 + threadIdx.x % 32 / 4;  // first of this thread's two rows (g, g + 8)
  const int t = threadIdx.x % 4;                                    // its columns are 8j + 2t, + 1
  const uint32_t a_k = s_k + half * kBoxBytes, a_v = s_v + half * kBoxBytes;

  float dk[64], dv[64], s[32], dp[32];
#pragma unroll
  for (int i = 0; i < 64; ++i) dk[i] = dv[i] = 0.f;

  Ring<kKvStages> ring;
  int i = 0;
  if (kCausal && half == 1) {
    // The first query tile lies above the upper half's keys only. Wait for it all the same: parity waits may not skip a phase.
    mbar_wait(bars.full(0), 0);
    bars.release(0);
    ring.next();
    i = 1;
  }
  int previous = -1;
  mbar_wait(bars.resident(), 0);
  for (; i < tiles; ++i) {
    const uint32_t b_q = s_stage + ring.slot * kKvStageBytes, b_do = b_q + kTile64;
    const float* stats = reinterpret_cast<const float*>(smem + 2 * kTile128 + ring.slot * kKvStageBytes + 2 * kTile64) + 2 * t;
    mbar_wait(bars.full(ring.slot), ring.phase);
    gemm_rows(s, a_k, kTile64, b_q, kBoxBytes);                     // S^T
    wgmma_wait<1>();                                                // the previous tile's dV and dK are done
    if (previous >= 0) bars.release(previous);
    gemm_rows(dp, a_v, kTile64, b_do, kBoxBytes);                   // dP^T
    wgmma_wait<1>();
    pin(s);
    if (kCausal && first_query + i * kQueryTile == key0 + half * 64) {  // on the diagonal: keep query >= key
#pragma unroll
      for (int e = 0; e < 32; ++e)
        if (e / 4 * 8 + 2 * t + e % 2 < g + e % 4 / 2 * 8) s[e] = -INFINITY;
    }
    uint32_t frag[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(stats + 8 * j);
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; ++e) s[e] = exp2_approx(fmaf(s[e], kScaleLog2, e % 2 ? -l.y : -l.x));
    }
    pack_fragments(frag, s);
    gemm_regs<4>(dv, frag, b_do, kBoxBytes);                        // dV += P^T dO
    wgmma_wait<1>();
    pin(dp);
    uint32_t frag_ds[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 dl = *reinterpret_cast<const float2*>(stats + 128 + 8 * j);
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; ++e) dp[e] = s[e] * (dp[e] - (e % 2 ? dl.y : dl.x));
    }
    pack_fragments(frag_ds, dp);
    gemm_regs<4>(dk, frag_ds, b_q, kBoxBytes);                      // dK += dS^T Q
    previous = ring.slot;
    ring.next();
  }
  wgmma_wait<0>();
  pin(dk);
  pin(dv);
  const int64_t row = static_cast<int64_t>(head_row) + key0 + half * 64 + g;
  store_rows(dv_out, row, t, dv, 1.f);
  store_rows(dk_out, row, t, dk, kScale);
}

__global__ void __launch_bounds__(kThreads, 1)
dq_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do, const float* lse2,
          const float* delta, __nv_bfloat16* dq_out, int seq) {
  uint8_t* smem = aligned_smem();
  const uint32_t s_q = smem_u32(smem), s_do = s_q + kTile128, s_ring = s_do + kTile128;
  const Barriers<kRingSlots> bars{s_ring + kRingSlots * kTile128};
  bars.init();

  const int blocks = seq / kBlock;
  const int head_row = static_cast<int>(blockIdx.x / blocks) * seq;
  const int index = static_cast<int>(blockIdx.x % blocks);
  const int block = kCausal ? blocks - 1 - index : index;           // causal: the longest loops (late queries) start first
  const int query0 = block * kBlock;
  const int tiles = kCausal ? block + 1 : blocks;
  const int wg = threadIdx.x / 128;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    if (threadIdx.x == 0) {
      mbar_expect(bars.resident(), 2 * kTile128);
      tma_tile<128>(s_q, &map_q, head_row + query0, bars.resident());
      tma_tile<128>(s_do, &map_do, head_row + query0, bars.resident());
      Ring<kRingSlots> ring;
      for (int i = 0; i < 2 * tiles; ++i, ring.next()) {            // even: K, odd: V
        const uint32_t full = bars.full(ring.slot);
        mbar_wait(bars.empty(ring.slot), ring.phase ^ 1);
        mbar_expect(full, kTile128);
        tma_tile<128>(s_ring + ring.slot * kTile128, i % 2 ? &map_v : &map_k, head_row + i / 2 * kBlock, full);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
  const int half = wg - 1;
  const int g = (threadIdx.x % 128) / 32 * 16 + threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const uint32_t a_q = s_q + half * kBoxBytes, a_do = s_do + half * kBoxBytes;
  const int64_t row = static_cast<int64_t>(head_row) + query0 + half * 64 + g;
  const float l0 = lse2[row], l8 = lse2[row + 8], delta0 = delta[row], delta8 = delta[row + 8];

  float dq[64], s[64], dp[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) dq[i] = 0.f;

  Ring<kRingSlots> ring;
  int previous = -1;
  mbar_wait(bars.resident(), 0);
  mbar_wait(bars.full(0), 0);                                       // the first K
  for (int i = 0; i < tiles; ++i) {
    const int k_slot = ring.slot;
    const uint32_t b_k = s_ring + k_slot * kTile128;
    ring.next();
    gemm_rows(s, a_q, kTile64, b_k, kTile64);                       // S
    wgmma_wait<1>();                                                // the previous tile's dQ is done with its K
    if (previous >= 0) bars.release(previous);
    const int v_slot = ring.slot;
    mbar_wait(bars.full(v_slot), ring.phase);
    ring.next();
    gemm_rows(dp, a_do, kTile64, s_ring + v_slot * kTile128, kTile64);  // dP
    wgmma_wait<1>();
    pin(s);
    if (kCausal && i == block) {                                    // on the diagonal: keep key <= query
#pragma unroll
      for (int e = 0; e < 64; ++e)
        if (e / 4 * 8 + 2 * t + e % 2 > half * 64 + g + e % 4 / 2 * 8) s[e] = -INFINITY;
    }
#pragma unroll
    for (int e = 0; e < 64; ++e) s[e] = exp2_approx(fmaf(s[e], kScaleLog2, e % 4 < 2 ? -l0 : -l8));
    pin(s);
    // The next K is waited for here, not at the top: it is long there, and the loop in the wait is a block boundary that stops the
    // compiler from sinking the exponentials below the wait for dP.
    if (i + 1 < tiles) mbar_wait(bars.full(ring.slot), ring.phase);
    wgmma_wait<0>();
    pin(dp);
    bars.release(v_slot);
    uint32_t frag[32];
#pragma unroll
    for (int e = 0; e < 64; ++e) s[e] *= dp[e] - (e % 4 < 2 ? delta0 : delta8);
    pack_fragments(frag, s);
    gemm_regs<8>(dq, frag, b_k, kTile64);                           // dQ += dS K
    previous = k_slot;
  }
  wgmma_wait<0>();
  pin(dq);
  store_rows(dq_out, row, t, dq, kScale);
}

// ---------------------------------------------------------------- host
template <class T>
T* data(const tvm::ffi::TensorView& t) {
  return static_cast<T*>(t.data_ptr());
}
void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

CUtensorMap make_map(const void* data, int64_t rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {kD, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kD * sizeof(__nv_bfloat16)};
  const cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), dims, strides, box,
                                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(r);
  return map;
}

// Memory that outlives a call, since allocating costs more host time than launching; its contents never do: prepare
// writes every element that the other kernels read.
float* scratch(int64_t count) {
  static float* memory = nullptr;
  static int64_t held = 0;
  if (count > held) {
    check(cudaFree(memory), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(float)), "scratch allocation");
    held = count;
  }
  return memory;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O, tvm::ffi::TensorView dO,
         tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q of shape [B, H, S, 128]";
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2), rows = heads * seq;
  if (seq % kBlock != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, got " << seq;
  if (rows > INT32_MAX) TVM_FFI_THROW(RuntimeError) << "B*H*S must fit in 31 bits, got " << rows;
  if (rows == 0) return;
  const cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  const CUtensorMap map_q = make_map(Q.data_ptr(), rows), map_k = make_map(K.data_ptr(), rows);
  const CUtensorMap map_v = make_map(V.data_ptr(), rows), map_do = make_map(dO.data_ptr(), rows);
  check(cudaFuncSetAttribute(dkdv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kKvSmem), "dkdv shared memory");
  check(cudaFuncSetAttribute(dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDqSmem), "dq shared memory");

  float* lse2 = scratch(2 * rows);
  float* delta = lse2 + rows;
  const int grid = static_cast<int>(rows / kBlock);
  prepare_kernel<<<static_cast<int>(rows / 16), 256, 0, stream>>>(data<uint4>(O), data<uint4>(dO), data<float>(L), lse2, delta);
  dkdv_kernel<<<grid, kThreads, kKvSmem, stream>>>(map_q, map_k, map_v, map_do, lse2, delta, data<__nv_bfloat16>(dK),
                                                   data<__nv_bfloat16>(dV), static_cast<int>(seq));
  dq_kernel<<<grid, kThreads, kDqSmem, stream>>>(map_q, map_k, map_v, map_do, lse2, delta, data<__nv_bfloat16>(dQ),
                                                 static_cast<int>(seq));
  check(cudaGetLastError(), "kernel launch");  // the first failed launch of the three
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
