// PTX and fragments of the reference's attention backward, D = 128.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

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
