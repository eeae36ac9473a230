// Causal attention forward with LSE, D = 128, BF16, Hopper.
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
__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
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
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_async_smem() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Two stages: slot and parity.
struct Ring2 {
  uint32_t slot = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    phase ^= slot;
    slot ^= 1;
  }
};

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
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
               ::"r"(dst), "l"(map), "r"(bar), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_load_hint(uint32_t dst, const CUtensorMap* map, uint32_t bar, uint64_t policy, int x,
                                              int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
      "l"(map), "r"(bar), "l"(policy), "r"(x), "r"(y)
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
template <int kSwizzle>
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  const uint64_t layout = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3 : 0;
  return (layout << 62) | (static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32) |
         (static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16) | ((addr & 0x3FFFF) >> 4);
}
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_k_major(uint32_t addr) {
  return smem_desc<kSwizzle>(addr, 16, 8 * kSwizzle);
}
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_mn_major(uint32_t addr, uint32_t next_box) {
  return smem_desc<kSwizzle>(addr, next_box, 8 * kSwizzle);
}

#define WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG_16(d, i) WG_4(d, i), WG_4(d, i + 4), WG_4(d, i + 8), WG_4(d, i + 12)
#define WG_D64(d) WG_16(d, 0), WG_16(d, 16), WG_16(d, 32), WG_16(d, 48)
#define WG_R64                                                        \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "      \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "      \
  "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "      \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, "      \
  "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "      \
  "%62, %63"

template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WG_R64 "}, %64, %65, p, 1, 1, %67, %68;\n}"
      : WG_D64(d)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB)
      : "memory");
}
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WG_R64 "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
      : WG_D64(d)
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
template <int kN>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[kN / 2], const float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) a[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
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
constexpr int kBlock = 128;                  // queries and keys of a tile
constexpr int kSection = 16;                 // heads worked on together (L2)
constexpr uint32_t kBox = 128 * 128;         // 128 rows of 64 columns
constexpr uint32_t kTileBytes = 2 * kBox;    // 128 x 128
constexpr uint32_t kOffQ = 0;                // 2 buffers
constexpr uint32_t kOffK = 2 * kTileBytes;   // 2 stages
constexpr uint32_t kOffV = 4 * kTileBytes;   // 2 stages
constexpr uint32_t kOffO = 6 * kTileBytes;   // staging, half a tile for each consumer
constexpr uint32_t kSmem = 7 * kTileBytes + 1024;
constexpr float kScale = 0.08838834764831845f;               // 1 / sqrt(128)
constexpr float kC = 0.08838834764831845f * 1.4426950408889634f;
constexpr float kSlack = 8.0f / kC;          // the maximum may be stale by a factor of 2^8

__device__ uint32_t g_counter;  // set to 0 by each call, before the kernel

struct Tile {
  int head, m;
};
// Sections of kSection heads; in a section the longest tiles first.
__device__ __forceinline__ Tile decode(int id, int blocks, int heads) {
  const int per = kSection * blocks;
  const int section = id / per;
  const int rest = id - section * per;
  const int count = min(kSection, heads - section * kSection);
  const int level = rest / count;
  return Tile{section * kSection + (rest - level * count), blocks - 1 - level};
}

// Scores -> probabilities (not normalized) in place. Returns whether O must be multiplied by alpha (per warp).
template <bool kFirst>
__device__ __forceinline__ bool softmax(float (&s)[64], float (&m)[2], float (&l)[2], float (&alpha)[2]) {
  float a0 = s[0], a1 = s[1], b0 = s[2], b1 = s[3];
#pragma unroll
  for (int j = 1; j < 16; ++j) {
    a0 = fmaxf(a0, s[4 * j]);
    a1 = fmaxf(a1, s[4 * j + 1]);
    b0 = fmaxf(b0, s[4 * j + 2]);
    b1 = fmaxf(b1, s[4 * j + 3]);
  }
  const float a = fmaxf(a0, a1), b = fmaxf(b0, b1);
  bool rescale = false;
  alpha[0] = 1.0f;
  alpha[1] = 1.0f;
  if (kFirst) {
    m[0] = quad_max(a);
    m[1] = quad_max(b);
    l[0] = 0.0f;
    l[1] = 0.0f;
  } else {
    rescale = __any_sync(0xffffffffu, a > m[0] + kSlack || b > m[1] + kSlack);
    if (rescale) {
      const float n0 = fmaxf(m[0], quad_max(a)), n1 = fmaxf(m[1], quad_max(b));
      alpha[0] = exp2_fast((m[0] - n0) * kC);
      alpha[1] = exp2_fast((m[1] - n1) * kC);
      l[0] *= alpha[0];
      l[1] *= alpha[1];
      m[0] = n0;
      m[1] = n1;
    }
  }
  const float c0 = -m[0] * kC, c1 = -m[1] * kC;
  float x0 = 0.0f, x1 = 0.0f, y0 = 0.0f, y1 = 0.0f;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    s[4 * j] = exp2_fast(fmaf(s[4 * j], kC, c0));
    s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], kC, c0));
    s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], kC, c1));
    s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], kC, c1));
    x0 += s[4 * j];
    x1 += s[4 * j + 1];
    y0 += s[4 * j + 2];
    y1 += s[4 * j + 3];
  }
  l[0] += x0 + x1;
  l[1] += y0 + y1;
  return rescale;
}

// S (64 x 128) = Q K^T; q: this consumer's 64 rows.
__device__ __forceinline__ void issue_scores(float (&s)[64], uint32_t q, uint32_t k) {
  const uint64_t dq = desc_k_major(q), dk = desc_k_major(k);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    wgmma_ss(s, dq + (i / 4 * (kBox >> 4) + i % 4 * 2), dk + (i / 4 * (kBox >> 4) + i % 4 * 2), i > 0);
  wgmma_commit();
}
// O (64 x 128) = P V + (accumulate ? O : 0)
__device__ __forceinline__ void issue_output(float (&o)[64], const uint32_t (&p)[32], uint32_t v, int accumulate) {
  const uint64_t dv = desc_mn_major(v, kBox);
#pragma unroll
  for (int i = 0; i < 8; ++i) wgmma_rs<1>(o, p + 4 * i, dv + i * 128, i > 0 ? 1 : accumulate);
  wgmma_commit();
}

__global__ void __launch_bounds__(384, 1)
    attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int seq,
              int heads, uint32_t* counter) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barriers[12];
  __shared__ int tile_ids[2];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const uint32_t bars = smem_u32(barriers);
  const uint32_t q_full = bars, q_empty = bars + 16, k_full = bars + 32, k_empty = bars + 48, v_full = bars + 64,
                 v_empty = bars + 80;
  volatile int* ids = tile_ids;
  const int blocks = seq / kBlock;
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);

  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      mbar_init(q_full + 8 * i, 1);
      mbar_init(k_full + 8 * i, 1);
      mbar_init(v_full + 8 * i, 1);
      mbar_init(q_empty + 8 * i, 8);
      mbar_init(k_empty + 8 * i, 8);
      mbar_init(v_empty + 8 * i, 8);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (role == 0) {
    // ------------------------------------------------------------ producer
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) {
      tma_prefetch_map(&map_q);
      tma_prefetch_map(&map_k);
      tma_prefetch_map(&map_v);
      tma_prefetch_map(&map_o);
      const uint64_t once = policy_evict_first();
      const int total = heads * blocks;
      Ring2 qr, kr, vr;
      int id = static_cast<int>(blockIdx.x);
      int pending = -1;  // row of the V block that is still to be loaded for the tile before

      auto load_k = [&](int row) {
        const uint32_t bar = k_full + 8 * kr.slot, dst = smem + kOffK + kr.slot * kTileBytes;
        mbar_wait(k_empty + 8 * kr.slot, kr.phase ^ 1);
        mbar_expect_tx(bar, kTileBytes);
        tma_load(dst, &map_k, bar, 0, row);
        tma_load(dst + kBox, &map_k, bar, 64, row);
        kr.next();
      };
      auto load_v = [&](int row) {
        const uint32_t bar = v_full + 8 * vr.slot, dst = smem + kOffV + vr.slot * kTileBytes;
        mbar_wait(v_empty + 8 * vr.slot, vr.phase ^ 1);
        mbar_expect_tx(bar, kTileBytes);
        tma_load(dst, &map_v, bar, 0, row);
        tma_load(dst + kBox, &map_v, bar, 64, row);
        vr.next();
      };

      while (true) {
        mbar_wait(q_empty + 8 * qr.slot, qr.phase ^ 1);
        if (id >= total) {
          ids[qr.slot] = -1;
          mbar_arrive(q_full + 8 * qr.slot);
          if (pending >= 0) load_v(pending);
          break;
        }
        const Tile tile = decode(id, blocks, heads);
        const int base = tile.head * seq;
        {
          const uint32_t bar = q_full + 8 * qr.slot, dst = smem + kOffQ + qr.slot * kTileBytes;
          ids[qr.slot] = id;
          mbar_expect_tx(bar, kTileBytes);
          tma_load_hint(dst, &map_q, bar, once, 0, base + tile.m * kBlock);
          tma_load_hint(dst + kBox, &map_q, bar, once, 64, base + tile.m * kBlock);
          qr.next();
        }
        load_k(base + tile.m * kBlock);
        if (pending >= 0) load_v(pending);
        int next = 0;
        if (tile.m == 0) next = static_cast<int>(gridDim.x + atomicAdd(counter, 1u));
        for (int n = tile.m - 1; n >= 0; --n) {
          if (n == 0) next = static_cast<int>(gridDim.x + atomicAdd(counter, 1u));
          load_k(base + n * kBlock);
          load_v(base + (n + 1) * kBlock);
        }
        pending = base;
        id = next;
      }
    }
    return;
  }

  // -------------------------------------------------------------- consumers
  setmaxnreg_inc<232>();
  const int w = role - 1;
  const int t = static_cast<int>(threadIdx.x) % 128;
  const bool lead = t % 32 == 0;  // one lane of each warp hands stages back
  const uint32_t my_turn = 1 + w, other_turn = 2 - w;
  const uint32_t q_base = smem + kOffQ + w * 8192;
  const uint32_t o_base = smem + kOffO + w * kBox;
  const int r0 = w * 64 + t / 32 * 16 + t % 32 / 4;  // first of this thread's two rows in the tile; the other: + 8
  const int c0 = t % 4 * 2;

  if (w == 1) named_arrive(1, 256);  // the first turn is consumer 0's

  Ring2 qr, kr, vr;
  float s[64], o[64];
  uint32_t p[32];
  float m[2], l[2], alpha[2];

  // Scores of the first block of the first tile.
  mbar_wait(q_full, 0);
  int id = warp_uniform(ids[0]);
  mbar_wait(k_full, 0);
  wgmma_fence();
  issue_scores(s, q_base, smem + kOffK);
  wgmma_wait<0>();
  pin(s);
  if (lead) mbar_arrive(k_empty);
  kr.next();

  while (true) {
    const Tile tile = decode(id, blocks, heads);
    const int row0 = tile.head * seq + tile.m * kBlock;

    // Diagonal block: the only one with a mask. Each row has at least its own key.
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int column = 8 * j + c0;
      if (column > r0) s[4 * j] = -INFINITY;
      if (column + 1 > r0) s[4 * j + 1] = -INFINITY;
      if (column > r0 + 8) s[4 * j + 2] = -INFINITY;
      if (column + 1 > r0 + 8) s[4 * j + 3] = -INFINITY;
    }
    softmax<true>(s, m, l, alpha);
    pack_fragments(p, s);

    const uint32_t q_addr = q_base + qr.slot * kTileBytes;
    for (int n = tile.m; n > 0; --n) {  // P V of block n, scores of block n - 1
      const uint32_t k_bar = 8 * kr.slot, v_bar = 8 * vr.slot;
      mbar_wait(k_full + k_bar, kr.phase);
      mbar_wait(v_full + v_bar, vr.phase);
      named_sync(my_turn, 256);
      wgmma_fence();
      issue_scores(s, q_addr, smem + kOffK + kr.slot * kTileBytes);
      issue_output(o, p, smem + kOffV + vr.slot * kTileBytes, n != tile.m);
      named_arrive(other_turn, 256);

      wgmma_wait<1>();  // scores
      pin(s);
      if (lead) mbar_arrive(k_empty + k_bar);
      kr.next();
      const bool rescale = softmax<false>(s, m, l, alpha);
      pin(s);  // the exponentials come before the wait for P V

      wgmma_wait<0>();
      pin(o);
      pin(s);
      if (lead) mbar_arrive(v_empty + v_bar);
      vr.next();
      if (rescale) {
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          o[4 * j] *= alpha[0];
          o[4 * j + 1] *= alpha[0];
          o[4 * j + 2] *= alpha[1];
          o[4 * j + 3] *= alpha[1];
        }
      }
      pack_fragments(p, s);
    }

    // Last P V of this tile, and the first scores of the next one (of stale data, and not used, if there is none).
    const uint32_t old_q = q_empty + 8 * qr.slot;
    qr.next();
    mbar_wait(q_full + 8 * qr.slot, qr.phase);
    const int next = warp_uniform(ids[qr.slot]);
    if (next >= 0) mbar_wait(k_full + 8 * kr.slot, kr.phase);
    mbar_wait(v_full + 8 * vr.slot, vr.phase);
    named_sync(my_turn, 256);
    wgmma_fence();
    issue_output(o, p, smem + kOffV + vr.slot * kTileBytes, tile.m != 0);
    issue_scores(s, q_base + qr.slot * kTileBytes, smem + kOffK + kr.slot * kTileBytes);
    if (w == 0 || next >= 0) named_arrive(other_turn, 256);

    wgmma_wait<1>();  // O is complete
    pin(o);
    if (lead) {
      mbar_arrive(v_empty + 8 * vr.slot);
      mbar_arrive(old_q);
    }
    vr.next();

    // Epilogue, while the next scores run.
    l[0] = quad_sum(l[0]);
    l[1] = quad_sum(l[1]);
    const float i0 = 1.0f / l[0], i1 = 1.0f / l[1];
    if (t % 4 == 0) {
      float* out = lse + row0 + r0;
      out[0] = fmaf(m[0], kScale, log2_fast(l[0]) * 0.6931471805599453f);
      out[8] = fmaf(m[1], kScale, log2_fast(l[1]) * 0.6931471805599453f);
    }
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      o[4 * j] *= i0;
      o[4 * j + 1] *= i0;
      o[4 * j + 2] *= i1;
      o[4 * j + 3] *= i1;
    }
    if (t == 0) tma_wait_read<0>();  // the staging has been read by the store of the tile before
    named_sync(3 + w, 128);
    store_box(o_base, o, t);
    store_box(o_base + 8192, o + 32, t);
    fence_async_smem();
    named_sync(3 + w, 128);
    if (t == 0) {
      const uint64_t once = policy_evict_first();
      tma_store_hint(&map_o, o_base, once, 0, row0 + w * 64);
      tma_store_hint(&map_o, o_base + 8192, once, 64, row0 + w * 64);
      tma_commit();
    }

    wgmma_wait<0>();
    pin(s);
    if (next < 0) break;
    if (lead) mbar_arrive(k_empty + 8 * kr.slot);
    kr.next();
    id = next;
  }
  if (t == 0) tma_wait<0>();
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
  if (seq % kBlock != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kBlock;
  if (rows > 0x7fffffff) TVM_FFI_THROW(RuntimeError) << "too many rows";
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  const CUtensorMap map_q = make_matrix_map(Q.data_ptr(), rows, kD, 128, 64);
  const CUtensorMap map_k = make_matrix_map(K.data_ptr(), rows, kD, 128, 64);
  const CUtensorMap map_v = make_matrix_map(V.data_ptr(), rows, kD, 128, 64);
  const CUtensorMap map_o = make_matrix_map(O.data_ptr(), rows, kD, 64, 64);

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "number of SMs");
  const int64_t total = heads * (seq / kBlock);
  const unsigned grid = static_cast<unsigned>(total < sms ? total : sms);

  void* counter = nullptr;
  check(cudaGetSymbolAddress(&counter, g_counter), "address of the counter");
  check(cudaMemsetAsync(counter, 0, sizeof(uint32_t), stream), "resetting the counter");
  check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmem)),
        "dynamic shared memory");
  attention<<<grid, 384, kSmem, stream>>>(map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                                          static_cast<int>(seq), static_cast<int>(heads),
                                          static_cast<uint32_t*>(counter));
  check(cudaGetLastError(), "launching attention");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
