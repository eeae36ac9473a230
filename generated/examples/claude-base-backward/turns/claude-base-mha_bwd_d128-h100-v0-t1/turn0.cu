#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int HEAD_DIM = 128;
constexpr float LOG2E = 1.4426950408889634f;
constexpr int CLUSTER = 2;
constexpr int NUM_THREADS = 3 * 128;

// ---------------------------------------------------------------- PTX wrappers

__device__ __forceinline__ uint32_t to_shared(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

__device__ __forceinline__ void cluster_sync_all() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

struct Barrier {
  uint32_t addr;
  __device__ void init(int n) const { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(addr), "r"(n)); }
  __device__ void expect(uint32_t bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(addr), "r"(bytes) : "memory");
  }
  __device__ void wait(uint32_t parity) const {
    uint32_t done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred p;\n"
          "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
          "selp.u32 %0, 1, 0, p;\n}"
          : "=r"(done)
          : "r"(addr), "r"(parity)
          : "memory");
    }
  }
  // Arrive on the barrier at the same offset in another block of the cluster.
  __device__ void arrive_remote(uint32_t rank) const {
    asm volatile(
        "{\n.reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(addr),
        "r"(rank)
        : "memory");
  }
};

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap& map, Barrier bar, int col, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          dst),
      "l"(&map), "r"(col), "r"(row), "r"(bar.addr)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap& map, Barrier bar, int col, int row,
                                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3}], [%4], %5;" ::"r"(dst),
      "l"(&map), "r"(col), "r"(row), "r"(bar.addr), "h"(mask)
      : "memory");
}

__device__ __forceinline__ uint64_t smem_desc(uint32_t addr, uint32_t leading, uint32_t stride) {
  uint64_t desc = (addr & 0x3FFFFull) >> 4;
  desc |= (uint64_t)(leading >> 4) << 16;
  desc |= (uint64_t)(stride >> 4) << 32;
  desc |= 1ull << 62;  // 128-byte swizzle
  return desc;
}

__device__ __forceinline__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

#define F4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define F16(x, i) F4(x, i), F4(x, i + 4), F4(x, i + 8), F4(x, i + 12)

__device__ __forceinline__ void mma_m64n64k16_ss(float (&c)[32], uint64_t a, uint64_t b, bool acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      " %32, %33, p, 1, 1, 0, 0;\n}"
      : F16(c, 0), F16(c, 16)
      : "l"(a), "l"(b), "r"((int)acc));
}

__device__ __forceinline__ void mma_m64n128k16_ss(float (&c)[64], uint64_t a, uint64_t b, bool acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      " %64, %65, p, 1, 1, 0, 0;\n}"
      : F16(c, 0), F16(c, 16), F16(c, 32), F16(c, 48)
      : "l"(a), "l"(b), "r"((int)acc));
}

// A from registers, B transposed (N is the contiguous axis in shared memory).
__device__ __forceinline__ void mma_m64n128k16_rs(float (&c)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      " {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
      : F16(c, 0), F16(c, 16), F16(c, 32), F16(c, 48)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t pack(float a, float b) {
  __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<uint32_t&>(v);
}

// ---------------------------------------------------------------- preprocess

// delta[row] = sum_d O dO; lse2[row] = L * log2(e).
__global__ void row_terms(const uint4* __restrict__ o, const uint4* __restrict__ d_o, const float* __restrict__ lse,
                          float* __restrict__ delta, float* __restrict__ lse2, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 16;
  const int lane = threadIdx.x % 16;
  float sum = 0.f;
  if (row < rows) {
    uint4 a = o[(size_t)row * 16 + lane];
    uint4 b = d_o[(size_t)row * 16 + lane];
    const __nv_bfloat162* pa = reinterpret_cast<const __nv_bfloat162*>(&a);
    const __nv_bfloat162* pb = reinterpret_cast<const __nv_bfloat162*>(&b);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 fa = __bfloat1622float2(pa[i]), fb = __bfloat1622float2(pb[i]);
      sum += fa.x * fb.x + fa.y * fb.y;
    }
  }
#pragma unroll
  for (int m = 8; m; m >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, m);
  if (row < rows && lane == 0) {
    delta[row] = sum;
    lse2[row] = lse[row] * LOG2E;
  }
}

// ---------------------------------------------------------------- dK, dV

struct DkvConfig {
  static constexpr int OWN = 128, STREAM = 64, STAGES = 4;
  static constexpr uint32_t OWN_BYTES = OWN * HEAD_DIM * 2;
  static constexpr uint32_t TILE_BYTES = STREAM * HEAD_DIM * 2;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES;
  static constexpr uint32_t BARS = 2 * OWN_BYTES + STAGES * STAGE_BYTES;
  static constexpr uint32_t SMEM = BARS + 256 + 1024;
};

struct DqConfig {
  static constexpr int OWN = 128, STREAM = 64, STAGES = 4;
  static constexpr uint32_t OWN_BYTES = OWN * HEAD_DIM * 2;
  static constexpr uint32_t TILE_BYTES = STREAM * HEAD_DIM * 2;
  static constexpr uint32_t STAGE_BYTES = 2 * TILE_BYTES;
  static constexpr uint32_t BARS = 2 * OWN_BYTES + STAGES * STAGE_BYTES;
  static constexpr uint32_t SMEM = BARS + 256 + 1024;
};

// Loads both owned tiles once, then streams pairs of tiles; each block of the cluster fetches one half of the columns for both.
template <class Config>
__device__ __forceinline__ void producer(uint32_t base, const CUtensorMap& own0, const CUtensorMap& own1,
                                         const CUtensorMap& stream0, const CUtensorMap& stream1, Barrier own_bar,
                                         uint32_t full0, uint32_t empty0, int own_row, int head_row, int tiles) {
  const uint32_t rank = cluster_rank();
  own_bar.expect(2 * Config::OWN_BYTES);
  for (int h = 0; h < 2; h++) {
    tma_load(base + h * (Config::OWN_BYTES / 2), own0, own_bar, h * 64, own_row);
    tma_load(base + Config::OWN_BYTES + h * (Config::OWN_BYTES / 2), own1, own_bar, h * 64, own_row);
  }
  const uint32_t stages = base + 2 * Config::OWN_BYTES;
  for (int t = 0; t < tiles; t++) {
    const int s = t % Config::STAGES;
    const uint32_t parity = (t / Config::STAGES) & 1;
    Barrier{empty0 + 8 * s}.wait(parity ^ 1);
    Barrier full{full0 + 8 * s};
    full.expect(Config::STAGE_BYTES);
    const uint32_t at = stages + s * Config::STAGE_BYTES + rank * (Config::TILE_BYTES / 2);
    tma_load_multicast(at, stream0, full, rank * 64, head_row + t * Config::STREAM, 3);
    tma_load_multicast(at + Config::TILE_BYTES, stream1, full, rank * 64, head_row + t * Config::STREAM, 3);
  }
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(NUM_THREADS, 1)
    dkdv_kernel(const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap do_map,
                const float* __restrict__ lse2, const float* __restrict__ delta, __nv_bfloat16* __restrict__ dk_out,
                __nv_bfloat16* __restrict__ dv_out, int seq, float scale) {
  using C = DkvConfig;
  extern __shared__ char smem_raw[];
  const uint32_t base = (to_shared(smem_raw) + 1023) / 1024 * 1024;
  const Barrier own_bar{base + C::BARS};
  const uint32_t full0 = base + C::BARS + 8, empty0 = full0 + 8 * C::STAGES;
  const int head_row = blockIdx.y * seq;
  const int own_row = head_row + blockIdx.x * C::OWN;
  const int tiles = seq / C::STREAM;

  if (threadIdx.x == 0) {
    own_bar.init(1);
    for (int s = 0; s < C::STAGES; s++) {
      Barrier{full0 + 8 * s}.init(1);
      Barrier{empty0 + 8 * s}.init(2 * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync_all();

  const int wg = threadIdx.x / 128;
  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == 256)
      producer<C>(base, k_map, v_map, q_map, do_map, own_bar, full0, empty0, own_row, head_row, tiles);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
    const float scale2 = scale * LOG2E;
    float dk[64] = {}, dv[64] = {};
    own_bar.wait(0);
    for (int i = 0; i < tiles; i++) {
      const int s = i % C::STAGES;
      const uint32_t q_tile = base + 2 * C::OWN_BYTES + s * C::STAGE_BYTES;
      const uint32_t do_tile = q_tile + C::TILE_BYTES;
      // Terms of the columns (queries) of this thread, early.
      const float* lrow = lse2 + head_row + i * C::STREAM + 2 * (lane % 4);
      const float* drow = delta + head_row + i * C::STREAM + 2 * (lane % 4);
      Barrier{full0 + 8 * s}.wait((i / C::STAGES) & 1);

      float p[32], dp[32];
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const uint32_t off = (k / 4) * (C::OWN_BYTES / 2) + wg * 8192 + (k % 4) * 32;
        const uint32_t soff = (k / 4) * (C::TILE_BYTES / 2) + (k % 4) * 32;
        mma_m64n64k16_ss(p, smem_desc(base + off, 16, 1024), smem_desc(q_tile + soff, 16, 1024), k > 0);
      }
      warpgroup_commit();
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const uint32_t off = C::OWN_BYTES + (k / 4) * (C::OWN_BYTES / 2) + wg * 8192 + (k % 4) * 32;
        const uint32_t soff = (k / 4) * (C::TILE_BYTES / 2) + (k % 4) * 32;
        mma_m64n64k16_ss(dp, smem_desc(base + off, 16, 1024), smem_desc(do_tile + soff, 16, 1024), k > 0);
      }
      warpgroup_commit();
      warpgroup_wait<1>();
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float2 l = __ldg(reinterpret_cast<const float2*>(lrow + 8 * j));
        p[4 * j + 0] = exp2_approx(fmaf(p[4 * j + 0], scale2, -l.x));
        p[4 * j + 1] = exp2_approx(fmaf(p[4 * j + 1], scale2, -l.y));
        p[4 * j + 2] = exp2_approx(fmaf(p[4 * j + 2], scale2, -l.x));
        p[4 * j + 3] = exp2_approx(fmaf(p[4 * j + 3], scale2, -l.y));
      }
      uint32_t pa[16];
#pragma unroll
      for (int j = 0; j < 16; j++) pa[j] = pack(p[2 * j], p[2 * j + 1]);
      warpgroup_wait<0>();
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 4; k++)
        mma_m64n128k16_rs(dv, pa[4 * k], pa[4 * k + 1], pa[4 * k + 2], pa[4 * k + 3],
                          smem_desc(do_tile + k * 2048, C::TILE_BYTES / 2, 1024));
      warpgroup_commit();
      uint32_t da[16];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        const float2 d = __ldg(reinterpret_cast<const float2*>(drow + 8 * j));
        da[2 * j] = pack(p[4 * j] * (dp[4 * j] - d.x), p[4 * j + 1] * (dp[4 * j + 1] - d.y));
        da[2 * j + 1] = pack(p[4 * j + 2] * (dp[4 * j + 2] - d.x), p[4 * j + 3] * (dp[4 * j + 3] - d.y));
      }
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 4; k++)
        mma_m64n128k16_rs(dk, da[4 * k], da[4 * k + 1], da[4 * k + 2], da[4 * k + 3],
                          smem_desc(q_tile + k * 2048, C::TILE_BYTES / 2, 1024));
      warpgroup_commit();
      warpgroup_wait<0>();
      if (t < CLUSTER) Barrier{empty0 + 8 * s}.arrive_remote(t);
    }
    const size_t row = own_row + wg * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < 16; j++) {
      const size_t at = row * HEAD_DIM + 8 * j + 2 * (lane % 4);
      *reinterpret_cast<uint32_t*>(dk_out + at) = pack(dk[4 * j] * scale, dk[4 * j + 1] * scale);
      *reinterpret_cast<uint32_t*>(dk_out + at + 8 * HEAD_DIM) = pack(dk[4 * j + 2] * scale, dk[4 * j + 3] * scale);
      *reinterpret_cast<uint32_t*>(dv_out + at) = pack(dv[4 * j], dv[4 * j + 1]);
      *reinterpret_cast<uint32_t*>(dv_out + at + 8 * HEAD_DIM) = pack(dv[4 * j + 2], dv[4 * j + 3]);
    }
  }
  // No block may leave while the other one still multicasts into it or arrives on its barriers.
  cluster_sync_all();
}

// ---------------------------------------------------------------- dQ

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(NUM_THREADS, 1)
    dq_kernel(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap do_map,
              const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
              const float* __restrict__ lse2, const float* __restrict__ delta, __nv_bfloat16* __restrict__ dq_out,
              int seq, float scale) {
  using C = DqConfig;
  extern __shared__ char smem_raw[];
  const uint32_t base = (to_shared(smem_raw) + 1023) / 1024 * 1024;
  const Barrier own_bar{base + C::BARS};
  const uint32_t full0 = base + C::BARS + 8, empty0 = full0 + 8 * C::STAGES;
  const int head_row = blockIdx.y * seq;
  const int own_row = head_row + blockIdx.x * C::OWN;
  const int tiles = seq / C::STREAM;

  if (threadIdx.x == 0) {
    own_bar.init(1);
    for (int s = 0; s < C::STAGES; s++) {
      Barrier{full0 + 8 * s}.init(1);
      Barrier{empty0 + 8 * s}.init(2 * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_sync_all();

  const int wg = threadIdx.x / 128;
  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == 256)
      producer<C>(base, q_map, do_map, k_map, v_map, own_bar, full0, empty0, own_row, head_row, tiles);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
    const float scale2 = scale * LOG2E;
    const int row = own_row + wg * 64 + warp * 16 + lane / 4;
    const float l0 = lse2[row], l1 = lse2[row + 8];
    const float d0 = delta[row], d1 = delta[row + 8];
    float dq[64] = {};
    own_bar.wait(0);
    for (int i = 0; i < tiles; i++) {
      const int s = i % C::STAGES;
      const uint32_t k_tile = base + 2 * C::OWN_BYTES + s * C::STAGE_BYTES;
      const uint32_t v_tile = k_tile + C::TILE_BYTES;
      Barrier{full0 + 8 * s}.wait((i / C::STAGES) & 1);
      float p[32], dp[32];
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const uint32_t off = (k / 4) * (C::OWN_BYTES / 2) + wg * 8192 + (k % 4) * 32;
        const uint32_t soff = (k / 4) * (C::TILE_BYTES / 2) + (k % 4) * 32;
        mma_m64n64k16_ss(p, smem_desc(base + off, 16, 1024), smem_desc(k_tile + soff, 16, 1024), k > 0);
      }
      warpgroup_commit();
#pragma unroll
      for (int k = 0; k < 8; k++) {
        const uint32_t off = C::OWN_BYTES + (k / 4) * (C::OWN_BYTES / 2) + wg * 8192 + (k % 4) * 32;
        const uint32_t soff = (k / 4) * (C::TILE_BYTES / 2) + (k % 4) * 32;
        mma_m64n64k16_ss(dp, smem_desc(base + off, 16, 1024), smem_desc(v_tile + soff, 16, 1024), k > 0);
      }
      warpgroup_commit();
      warpgroup_wait<1>();
#pragma unroll
      for (int j = 0; j < 8; j++) {
        p[4 * j + 0] = exp2_approx(fmaf(p[4 * j + 0], scale2, -l0));
        p[4 * j + 1] = exp2_approx(fmaf(p[4 * j + 1], scale2, -l0));
        p[4 * j + 2] = exp2_approx(fmaf(p[4 * j + 2], scale2, -l1));
        p[4 * j + 3] = exp2_approx(fmaf(p[4 * j + 3], scale2, -l1));
      }
      warpgroup_wait<0>();
      uint32_t da[16];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        da[2 * j] = pack(p[4 * j] * (dp[4 * j] - d0), p[4 * j + 1] * (dp[4 * j + 1] - d0));
        da[2 * j + 1] = pack(p[4 * j + 2] * (dp[4 * j + 2] - d1), p[4 * j + 3] * (dp[4 * j + 3] - d1));
      }
      warpgroup_arrive();
#pragma unroll
      for (int k = 0; k < 4; k++)
        mma_m64n128k16_rs(dq, da[4 * k], da[4 * k + 1], da[4 * k + 2], da[4 * k + 3],
                          smem_desc(k_tile + k * 2048, C::TILE_BYTES / 2, 1024));
      warpgroup_commit();
      warpgroup_wait<0>();
      if (t < CLUSTER) Barrier{empty0 + 8 * s}.arrive_remote(t);
    }
#pragma unroll
    for (int j = 0; j < 16; j++) {
      const size_t at = (size_t)row * HEAD_DIM + 8 * j + 2 * (lane % 4);
      *reinterpret_cast<uint32_t*>(dq_out + at) = pack(dq[4 * j] * scale, dq[4 * j + 1] * scale);
      *reinterpret_cast<uint32_t*>(dq_out + at + 8 * HEAD_DIM) = pack(dq[4 * j + 2] * scale, dq[4 * j + 3] * scale);
    }
  }
  cluster_sync_all();
}

// ---------------------------------------------------------------- host

CUtensorMap tensor_map(const tvm::ffi::TensorView& x, int box_rows) {
  CUtensorMap m{};
  cuuint64_t dims[2] = {HEAD_DIM, (cuuint64_t)(x.numel() / HEAD_DIM)};
  cuuint64_t strides[1] = {HEAD_DIM * sizeof(__nv_bfloat16)};
  cuuint32_t box[2] = {64, (cuuint32_t)box_rows};
  cuuint32_t elem[2] = {1, 1};
  CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data_ptr(), dims, strides, box, elem,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return m;
}

#define CUDA_OK(call)                                                                               \
  do {                                                                                              \
    cudaError_t e_ = (call);                                                                        \
    if (e_ != cudaSuccess) TVM_FFI_THROW(RuntimeError) << #call << ": " << cudaGetErrorString(e_);  \
  } while (0)

void backward(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
              tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
              tvm::ffi::TensorView dV) {
  const int heads = (int)(Q.size(0) * Q.size(1));
  const int seq = (int)Q.size(2);
  const int rows = heads * seq;
  if (seq % 256 != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256";
  cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id);
  float* scratch;
  CUDA_OK(cudaMallocAsync((void**)&scratch, 2 * (size_t)rows * sizeof(float), stream));
  float* delta = scratch;
  float* lse2 = scratch + rows;

  row_terms<<<(rows + 15) / 16, 256, 0, stream>>>((const uint4*)O.data_ptr(), (const uint4*)dO.data_ptr(),
                                                  (const float*)L.data_ptr(), delta, lse2, rows);
  CUDA_OK(cudaGetLastError());

  CUDA_OK(cudaFuncSetAttribute(dkdv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, DkvConfig::SMEM));
  CUDA_OK(cudaFuncSetAttribute(dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, DqConfig::SMEM));
  const float scale = 0.08838834764831845f;
  dim3 grid(seq / 128, heads);
  dkdv_kernel<<<grid, NUM_THREADS, DkvConfig::SMEM, stream>>>(
      tensor_map(K, 128), tensor_map(V, 128), tensor_map(Q, 64), tensor_map(dO, 64), lse2, delta,
      (__nv_bfloat16*)dK.data_ptr(), (__nv_bfloat16*)dV.data_ptr(), seq, scale);
  CUDA_OK(cudaGetLastError());
  dq_kernel<<<grid, NUM_THREADS, DqConfig::SMEM, stream>>>(tensor_map(Q, 128), tensor_map(dO, 128), tensor_map(K, 64),
                                                           tensor_map(V, 64), lse2, delta,
                                                           (__nv_bfloat16*)dQ.data_ptr(), seq, scale);
  CUDA_OK(cudaGetLastError());
  CUDA_OK(cudaFreeAsync(scratch, stream));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, backward);
