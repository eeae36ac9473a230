// mha_bwd_d96_causal
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace ptx = cuda::ptx;

constexpr int DIM = 96;
constexpr int MQ = 64;      // queries per step
constexpr int NK = 128;     // keys per tile
constexpr int ST = 3;
constexpr int BLOCK = 512;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float RSQRT_D = 0.10206207261596577f;

struct Layout {
  // "w": columns 0..63, 128-byte rows, 128B swizzle; "n": columns 64..95, 64-byte rows, 64B swizzle
  uint8_t kw[NK * 128];
  uint8_t vw[NK * 128];
  uint8_t qw[ST][MQ * 128];
  uint8_t gw[ST][MQ * 128];
  uint8_t ds[2][NK * 128];        // dS^T: rows are keys, 64 queries each
  uint8_t dq[3][MQ * 128];        // fp32, 32 columns a panel, 128B swizzle
  uint8_t kn[NK * 64];
  uint8_t vn[NK * 64];
  uint8_t qn[ST][MQ * 64];
  uint8_t gn[ST][MQ * 64];
  float lse[ST][MQ];
  float delta[ST][MQ];
  uint64_t kv_full, kv_empty;
  uint64_t full[ST], empty[ST];
  uint64_t ds_full[2], ds_empty[2];
  uint64_t job_full[2], job_empty[2];
  int job[2];
};

__device__ __forceinline__ uint32_t s32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void spin(uint64_t* bar, int phase) {
  while (!ptx::mbarrier_try_wait_parity(bar, static_cast<uint32_t>(phase & 1)))
    ;
}
__device__ __forceinline__ void signal(uint64_t* bar) {
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar);
}

__device__ __forceinline__ uint64_t wide(uint32_t a) {      // 128B swizzle, 1024-byte groups of 8 rows
  return (uint64_t(1) << 62) | (uint64_t(1024 >> 4) << 32) | (uint64_t(1) << 16) | ((a & 0x3FFFFu) >> 4);
}
__device__ __forceinline__ uint64_t narrow(uint32_t a) {    // 64B swizzle, 512-byte groups of 8 rows
  return (uint64_t(2) << 62) | (uint64_t(512 >> 4) << 32) | (uint64_t(1) << 16) | ((a & 0x3FFFFu) >> 4);
}

#define OUT8(x, i)                                                                                               \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), \
      "+f"(x[i + 7])
#define OUT16(x) OUT8(x, 0), OUT8(x, 8)
#define OUT32(x) OUT8(x, 0), OUT8(x, 8), OUT8(x, 16), OUT8(x, 24)
#define D16 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
#define D32                                                                                                    \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31}"

template <int TA, int TB>
__device__ __forceinline__ void ss64(float (&x)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred k; setp.ne.s32 k, %34, 0; "
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32 ", %32, %33, k, 1, 1, %35, %36; }"
      : OUT32(x)
      : "l"(a), "l"(b), "r"(keep), "n"(TA), "n"(TB));
}
template <int TA, int TB>
__device__ __forceinline__ void ss32(float (&x)[16], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred k; setp.ne.s32 k, %18, 0; "
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16 ", %16, %17, k, 1, 1, %19, %20; }"
      : OUT16(x)
      : "l"(a), "l"(b), "r"(keep), "n"(TA), "n"(TB));
}
__device__ __forceinline__ void rs64(float (&x)[32], const uint32_t (&a)[16], int kk, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " D32 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
               : OUT32(x)
               : "r"(a[4 * kk]), "r"(a[4 * kk + 1]), "r"(a[4 * kk + 2]), "r"(a[4 * kk + 3]), "l"(b));
}
__device__ __forceinline__ void rs32(float (&x)[16], const uint32_t (&a)[16], int kk, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " D16 ", {%16,%17,%18,%19}, %20, 1, 1, 1, 1;"
               : OUT16(x)
               : "r"(a[4 * kk]), "r"(a[4 * kk + 1]), "r"(a[4 * kk + 2]), "r"(a[4 * kk + 3]), "l"(b));
}
__device__ __forceinline__ void gmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void gmma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void gmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void hold(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}
template <int N>
__device__ __forceinline__ void grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

__device__ __forceinline__ float power2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t two(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// One thread: 8 columns of O and dO; 12 threads a row, 192 threads = 16 rows a block.
__global__ void __launch_bounds__(192) setup(const uint4* o, const uint4* g, const float* l, float* lse2, float* delta,
                                             int* counter) {
  __shared__ float part[192];
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 192 + threadIdx.x;
  const uint4 a = __ldg(o + at), b = __ldg(g + at);
  const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum += __uint_as_float(x[i] << 16) * __uint_as_float(y[i] << 16);
    sum += __uint_as_float(x[i] & 0xFFFF0000u) * __uint_as_float(y[i] & 0xFFFF0000u);
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < 16) {
    float total = 0.f;
#pragma unroll
    for (int i = 0; i < 12; ++i) total += part[threadIdx.x * 12 + i];
    const int64_t row = static_cast<int64_t>(blockIdx.x) * 16 + threadIdx.x;
    delta[row] = total;
    lse2[row] = l[row] * LOG2_E;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *counter = 0;
}

struct Maps {
  CUtensorMap qw, qn, gw, gn, kw, kn, vw, vn, dq;
};

__global__ void __launch_bounds__(BLOCK, 1)
    causal_backward(const __grid_constant__ Maps maps, const float* lse2, const float* delta, int* counter,
                    __nv_bfloat16* dk_out, __nv_bfloat16* dv_out, int seq, int jobs) {
  extern __shared__ uint8_t memory[];
  Layout& sm = *reinterpret_cast<Layout*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.kv_full, 1);
    ptx::mbarrier_init(&sm.kv_empty, 12);
    for (int i = 0; i < ST; ++i) {
      ptx::mbarrier_init(&sm.full[i], 1);
      ptx::mbarrier_init(&sm.empty[i], 8);
    }
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(&sm.ds_full[i], 8);
      ptx::mbarrier_init(&sm.ds_empty[i], 4);
      ptx::mbarrier_init(&sm.job_full[i], 1);
      ptx::mbarrier_init(&sm.job_empty[i], 12);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();

  const int key_tiles = seq / NK;
  const int query_tiles = seq / MQ;
  const int group = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  const int warp = (threadIdx.x / 32) % 4;

  auto next_job = [&](int n) {   // the n-th job of this CTA, for the three computing warpgroups
    spin(&sm.job_full[n & 1], n >> 1);
    const int job = *reinterpret_cast<volatile int*>(&sm.job[n & 1]);
    __syncwarp();
    if (lane == 0) signal(&sm.job_empty[n & 1]);
    return job;
  };

  if (group == 0) {
    // ---------------------------------------------------------------- scheduler and loads
    shrink<24>();
    if (threadIdx.x == 0) {
      int step = 0;
      for (int n = 0;; ++n) {
        const int job = atomicAdd(counter, 1);
        spin(&sm.job_empty[n & 1], (n >> 1) + 1);
        sm.job[n & 1] = job;
        signal(&sm.job_full[n & 1]);
        if (job >= jobs) break;
        const int head = (job / key_tiles) * seq;
        const int tile = job % key_tiles;        // longest first within a head
        const int32_t at_k[2] = {0, head + tile * NK}, at_kn[2] = {64, head + tile * NK};
        spin(&sm.kv_empty, n + 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.kv_full,
                                       2 * NK * DIM * 2);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.kw, &maps.kw, at_k, &sm.kv_full);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.kn, &maps.kn, at_kn, &sm.kv_full);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.vw, &maps.vw, at_k, &sm.kv_full);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.vn, &maps.vn, at_kn, &sm.kv_full);
        for (int m = 2 * tile; m < query_tiles; ++m, ++step) {
          const int s = step % ST;
          const int row = head + m * MQ;
          const int32_t at[2] = {0, row}, at_n[2] = {64, row};
          spin(&sm.empty[s], step / ST + 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.full[s],
                                         2 * MQ * DIM * 2 + 2 * MQ * 4);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.qw[s], &maps.qw, at, &sm.full[s]);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.qn[s], &maps.qn, at_n, &sm.full[s]);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.gw[s], &maps.gw, at, &sm.full[s]);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.gn[s], &maps.gn, at_n, &sm.full[s]);
          ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, sm.lse[s], lse2 + row, MQ * 4, &sm.full[s]);
          ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, sm.delta[s], delta + row, MQ * 4, &sm.full[s]);
        }
      }
    }
  } else if (group == 1) {
    // ---------------------------------------------------------------- dQ = dS K, reduced into global memory
    shrink<72>();
    const uint64_t k_wide = wide(s32(sm.kw)), k_narrow = narrow(s32(sm.kn));
    const int row = 16 * warp + lane / 4;
    const int sub = lane % 4;                    // columns 2 sub, 2 sub + 1 of each 8
    const uint32_t line = s32(sm.dq) + row * 128 + (sub & 1) * 8;
    int step = 0;
    for (int n = 0;; ++n) {
      const int job = next_job(n);
      if (job >= jobs) break;
      const int head = (job / key_tiles) * seq;
      spin(&sm.kv_full, n);
      for (int m = 2 * (job % key_tiles); m < query_tiles; ++m, ++step) {
        const int b = step & 1;
        float lo[32], hi[16];
        spin(&sm.ds_full[b], step >> 1);
        const uint64_t a = wide(s32(sm.ds[b]));
        hold(lo);
        hold(hi);
        gmma_begin();
#pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
          ss64<1, 1>(lo, a + kk * 128, k_wide + kk * 128, kk);
          ss32<1, 1>(hi, a + kk * 128, k_narrow + kk * 64, kk);
        }
        gmma_end();
        // meanwhile: has the last reduction read its source?
        if (warp == 0 && lane == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
        asm volatile("bar.sync 1, 128;" ::: "memory");
        gmma_wait<0>();
        hold(lo);
        hold(hi);
        if (lane == 0) signal(&sm.ds_empty[b]);
#pragma unroll
        for (int j = 0; j < 12; ++j) {
          const uint32_t chunk = (2 * (j % 4) + (sub >> 1)) ^ (row & 7);
          const uint32_t dst = line + (j / 4) * (MQ * 128) + chunk * 16;
          const float x0 = j < 8 ? lo[(4 * j) % 32] : hi[(4 * j) % 16];
          const float x1 = j < 8 ? lo[(4 * j + 1) % 32] : hi[(4 * j + 1) % 16];
          const float x2 = j < 8 ? lo[(4 * j + 2) % 32] : hi[(4 * j + 2) % 16];
          const float x3 = j < 8 ? lo[(4 * j + 3) % 32] : hi[(4 * j + 3) % 16];
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(dst), "f"(x0), "f"(x1) : "memory");
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(dst + 8 * 128), "f"(x2), "f"(x3) : "memory");
        }
        ptx::fence_proxy_async(ptx::space_shared);
        asm volatile("bar.sync 1, 128;" ::: "memory");
        if (warp == 0 && lane == 0) {
          const int32_t at[3] = {0, head + m * MQ, 0};
          ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &maps.dq, at, sm.dq);
          ptx::cp_async_bulk_commit_group();
        }
      }
      if (lane == 0) signal(&sm.kv_empty);
    }
    if (warp == 0 && lane == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  } else {
    // ---------------------------------------------------------------- S, dP, dV, dK for 64 keys
    grow<208>();
    const int w = group - 2;
    const int sub2 = (lane % 4) * 2;
    const uint64_t kw = wide(s32(sm.kw) + w * 8192), kn = narrow(s32(sm.kn) + w * 4096);
    const uint64_t vw = wide(s32(sm.vw) + w * 8192), vn = narrow(s32(sm.vn) + w * 4096);
    const int ds_row = 64 * w + 16 * warp + (lane & 15);
    const uint32_t ds_line = s32(sm.ds[0]) + ds_row * 128;
    int step = 0;
    for (int n = 0;; ++n) {
      const int job = next_job(n);
      if (job >= jobs) break;
      const int head = (job / key_tiles) * seq;
      const int tile = job % key_tiles;
      const int key = tile * NK + 64 * w + 16 * warp + lane / 4;
      float dkw[32], dkn[16], dvw[32], dvn[16], s[32];
#pragma unroll
      for (int i = 0; i < 32; ++i) dkw[i] = dvw[i] = 0.f;
#pragma unroll
      for (int i = 0; i < 16; ++i) dkn[i] = dvn[i] = 0.f;

      auto issue_scores = [&](int slot) {
        const uint64_t bw = wide(s32(sm.qw[slot])), bn = narrow(s32(sm.qn[slot]));
        hold(s);
        gmma_begin();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) ss64<0, 0>(s, kw + 2 * kk, bw + 2 * kk, kk);
#pragma unroll
        for (int kk = 0; kk < 2; ++kk) ss64<0, 0>(s, kn + 2 * kk, bn + 2 * kk, 1);
        gmma_end();
      };

      spin(&sm.kv_full, n);
      spin(&sm.full[step % ST], step / ST);
      issue_scores(step % ST);
      for (int m = 2 * tile; m < query_tiles; ++m, ++step) {
        const int slot = step % ST;
        const uint64_t gw = wide(s32(sm.gw[slot])), gn = narrow(s32(sm.gn[slot]));
        const uint64_t qw = wide(s32(sm.qw[slot])), qn = narrow(s32(sm.qn[slot]));
        float dp[32];
        hold(dp);
        gmma_begin();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) ss64<0, 0>(dp, vw + 2 * kk, gw + 2 * kk, kk);
#pragma unroll
        for (int kk = 0; kk < 2; ++kk) ss64<0, 0>(dp, vn + 2 * kk, gn + 2 * kk, 1);
        gmma_end();
        gmma_wait<1>();
        hold(s);
        uint32_t p[16], ds[16];
        const bool diagonal = m < 2 * tile + 2;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 l = *reinterpret_cast<const float2*>(&sm.lse[slot][8 * j + sub2]);
          float e0 = power2(fmaf(s[4 * j], RSQRT_D * LOG2_E, -l.x));
          float e1 = power2(fmaf(s[4 * j + 1], RSQRT_D * LOG2_E, -l.y));
          float e2 = power2(fmaf(s[4 * j + 2], RSQRT_D * LOG2_E, -l.x));
          float e3 = power2(fmaf(s[4 * j + 3], RSQRT_D * LOG2_E, -l.y));
          if (diagonal) {
            const int q = m * MQ + 8 * j + sub2;
            e0 = q >= key ? e0 : 0.f;
            e1 = q + 1 >= key ? e1 : 0.f;
            e2 = q >= key + 8 ? e2 : 0.f;
            e3 = q + 1 >= key + 8 ? e3 : 0.f;
          }
          s[4 * j] = e0;
          s[4 * j + 1] = e1;
          s[4 * j + 2] = e2;
          s[4 * j + 3] = e3;
          p[2 * j] = two(e0, e1);
          p[2 * j + 1] = two(e2, e3);
        }
        gmma_wait<0>();
        hold(dp);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float2 d = *reinterpret_cast<const float2*>(&sm.delta[slot][8 * j + sub2]);
          ds[2 * j] = two(s[4 * j] * (dp[4 * j] - d.x), s[4 * j + 1] * (dp[4 * j + 1] - d.y));
          ds[2 * j + 1] = two(s[4 * j + 2] * (dp[4 * j + 2] - d.x), s[4 * j + 3] * (dp[4 * j + 3] - d.y));
        }
        hold(dvw);
        hold(dvn);
        hold(dkw);
        hold(dkn);
        gmma_begin();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
          rs64(dvw, p, kk, gw + 128 * kk);
          rs32(dvn, p, kk, gn + 64 * kk);
        }
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
          rs64(dkw, ds, kk, qw + 128 * kk);
          rs32(dkn, ds, kk, qn + 64 * kk);
        }
        gmma_end();
        // dS^T for the dQ warpgroup
        const int b = step & 1;
        spin(&sm.ds_empty[b], (step >> 1) + 1);
#pragma unroll
        for (int jj = 0; jj < 4; ++jj) {
          const uint32_t dst = ds_line + b * (NK * 128) + (((2 * jj + (lane >> 4)) ^ (ds_row & 7)) << 4);
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(dst), "r"(ds[4 * jj]),
                       "r"(ds[4 * jj + 1]), "r"(ds[4 * jj + 2]), "r"(ds[4 * jj + 3])
                       : "memory");
        }
        ptx::fence_proxy_async(ptx::space_shared);
        __syncwarp();
        if (lane == 0) signal(&sm.ds_full[b]);
        if (m + 1 < query_tiles) {
          spin(&sm.full[(step + 1) % ST], (step + 1) / ST);
          issue_scores((step + 1) % ST);
          gmma_wait<1>();
        } else {
          gmma_wait<0>();
        }
        hold(dvw);
        hold(dvn);
        hold(dkw);
        hold(dkn);
        if (lane == 0) signal(&sm.empty[slot]);
      }
      if (lane == 0) signal(&sm.kv_empty);

      __nv_bfloat162* k0 = reinterpret_cast<__nv_bfloat162*>(dk_out + static_cast<int64_t>(head + key) * DIM + sub2);
      __nv_bfloat162* v0 = reinterpret_cast<__nv_bfloat162*>(dv_out + static_cast<int64_t>(head + key) * DIM + sub2);
      constexpr int EIGHT = 8 * DIM / 2;   // eight rows on
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        k0[4 * j] = __floats2bfloat162_rn(dkw[4 * j] * RSQRT_D, dkw[4 * j + 1] * RSQRT_D);
        k0[4 * j + EIGHT] = __floats2bfloat162_rn(dkw[4 * j + 2] * RSQRT_D, dkw[4 * j + 3] * RSQRT_D);
        v0[4 * j] = __floats2bfloat162_rn(dvw[4 * j], dvw[4 * j + 1]);
        v0[4 * j + EIGHT] = __floats2bfloat162_rn(dvw[4 * j + 2], dvw[4 * j + 3]);
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        k0[32 + 4 * j] = __floats2bfloat162_rn(dkn[4 * j] * RSQRT_D, dkn[4 * j + 1] * RSQRT_D);
        k0[32 + 4 * j + EIGHT] = __floats2bfloat162_rn(dkn[4 * j + 2] * RSQRT_D, dkn[4 * j + 3] * RSQRT_D);
        v0[32 + 4 * j] = __floats2bfloat162_rn(dvn[4 * j], dvn[4 * j + 1]);
        v0[32 + 4 * j + EIGHT] = __floats2bfloat162_rn(dvn[4 * j + 2], dvn[4 * j + 3]);
      }
    }
  }
}

__global__ void __launch_bounds__(256) scale_to_bf16(const float4* in, uint2* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= n) return;
  const float4 x = __ldcs(in + i);
  out[i] = make_uint2(two(x.x * RSQRT_D, x.y * RSQRT_D), two(x.z * RSQRT_D, x.w * RSQRT_D));
}

CUtensorMap bf16_map(void* p, int64_t rows, unsigned box_cols, unsigned box_rows) {
  CUtensorMap m;
  const cuuint64_t size[2] = {DIM, static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[1] = {DIM * 2};
  const cuuint32_t box[2] = {box_cols, box_rows};
  const cuuint32_t one[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(
      &m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, size, pitch, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
      box_cols == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "bf16 tensor map: " << static_cast<int>(r);
  return m;
}

CUtensorMap dq_map(float* p, int64_t rows) {
  CUtensorMap m;
  const cuuint64_t size[3] = {32, static_cast<cuuint64_t>(rows), 3};
  const cuuint64_t pitch[2] = {DIM * 4, 128};
  const cuuint32_t box[3] = {32, MQ, 3};
  const cuuint32_t one[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, p, size, pitch, box, one,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "dQ tensor map: " << static_cast<int>(r);
  return m;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != DIM) TVM_FFI_THROW(RuntimeError) << "expected D = 96";
  const int64_t seq = Q.size(2), rows = Q.size(0) * Q.size(1) * seq;
  if (seq % NK) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << NK;
  if (rows == 0) return;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static void* pool = nullptr;
  static int64_t pool_bytes = 0;
  const int64_t bytes = rows * DIM * 4 + rows * 8 + 256;
  if (bytes > pool_bytes) {
    if (pool) cudaFree(pool);
    pool = nullptr;
    pool_bytes = 0;
    if (cudaMalloc(&pool, bytes) != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "no scratch memory";
    pool_bytes = bytes;
  }
  float* dq = static_cast<float*>(pool);
  float* lse2 = dq + rows * DIM;
  float* delta = lse2 + rows;
  int* counter = reinterpret_cast<int*>(delta + rows);

  Maps maps;
  maps.qw = bf16_map(Q.data_ptr(), rows, 64, MQ);
  maps.qn = bf16_map(Q.data_ptr(), rows, 32, MQ);
  maps.gw = bf16_map(dO.data_ptr(), rows, 64, MQ);
  maps.gn = bf16_map(dO.data_ptr(), rows, 32, MQ);
  maps.kw = bf16_map(K.data_ptr(), rows, 64, NK);
  maps.kn = bf16_map(K.data_ptr(), rows, 32, NK);
  maps.vw = bf16_map(V.data_ptr(), rows, 64, NK);
  maps.vn = bf16_map(V.data_ptr(), rows, 32, NK);
  maps.dq = dq_map(dq, rows);

  int device = 0, sms = 132;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const int jobs = static_cast<int>(rows / NK);
  const int shared = static_cast<int>(sizeof(Layout)) + 1024;
  cudaFuncSetAttribute(causal_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);

  cudaMemsetAsync(dq, 0, rows * DIM * 4, stream);
  setup<<<static_cast<unsigned>(rows / 16), 192, 0, stream>>>(
      static_cast<const uint4*>(O.data_ptr()), static_cast<const uint4*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), lse2, delta, counter);
  causal_backward<<<jobs < sms ? jobs : sms, BLOCK, shared, stream>>>(
      maps, lse2, delta, counter, static_cast<__nv_bfloat16*>(dK.data_ptr()), static_cast<__nv_bfloat16*>(dV.data_ptr()),
      static_cast<int>(seq), jobs);
  const int64_t quads = rows * DIM / 4;
  scale_to_bf16<<<static_cast<unsigned>((quads + 255) / 256), 256, 0, stream>>>(
      reinterpret_cast<const float4*>(dq), static_cast<uint2*>(dQ.data_ptr()), quads);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_bwd_d96_causal: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
