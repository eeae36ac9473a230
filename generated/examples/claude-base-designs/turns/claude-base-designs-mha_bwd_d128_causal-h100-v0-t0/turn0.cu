// mha_bwd_d128_causal
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int HD = 128;
constexpr int QT = 64;
constexpr int KT = 128;
constexpr int NST = 2;
constexpr float RLN2 = 1.4426950408889634f;
constexpr float SM_SCALE = 0.08838834764831845f;
constexpr uint32_t K_PANEL = KT * 128;   // bytes of 64 columns
constexpr uint32_t Q_PANEL = QT * 128;

struct alignas(1024) Smem {
  char k[2 * K_PANEL];
  char v[2 * K_PANEL];
  char q[NST][2 * Q_PANEL];
  char g[NST][2 * Q_PANEL];
  char ds[2][2 * Q_PANEL];     // [64-key half][query][64 keys]
  float4 dq[2][8 * 128];       // one 64 x 64 half of dQ each, accumulator order
  uint4 p[8 * 128];            // P^T as bf16 pairs, accumulator order
  float lse[NST][QT];
  float delta[NST][QT];
  uint64_t full[NST], empty[NST], ds_full[2], ds_empty[2];
  uint64_t kv_full, kv_empty, p_full, p_empty;
};

// ---------------------------------------------------------------- PTX
__device__ __forceinline__ uint32_t sa(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void mb_init(uint64_t& b, uint32_t n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(sa(&b)), "r"(n));
}
__device__ __forceinline__ void mb_tx(uint64_t& b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(sa(&b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mb_arrive(uint64_t& b) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(sa(&b)) : "memory");
}
__device__ __forceinline__ void mb_arrive_warp(uint64_t& b) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) mb_arrive(b);
}
__device__ __forceinline__ void mb_wait(uint64_t& b, uint32_t phase) {
  uint32_t done;
  do {
    asm volatile(
        "{\n\t.reg .pred ok;\n\t"
        "mbarrier.try_wait.parity.shared.b64 ok, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, ok;\n\t}"
        : "=r"(done)
        : "r"(sa(&b)), "r"(phase & 1u)
        : "memory");
  } while (!done);
}
__device__ __forceinline__ void load_box(void* dst, const CUtensorMap& m, int col, int row, uint64_t& b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(sa(dst)),
      "l"(&m), "r"(sa(&b)), "r"(col), "r"(row)
      : "memory");
}
__device__ __forceinline__ void load_line(void* dst, const void* src, uint32_t bytes, uint64_t& b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sa(dst)),
               "l"(src), "r"(bytes), "r"(sa(&b))
               : "memory");
}
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ uint64_t op(uint32_t addr, uint32_t lead = 16) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(lead >> 4) << 16) |
         (static_cast<uint64_t>(1024 >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
}
__device__ __forceinline__ void mm_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mm_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void mm_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void live(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

#define E4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define E16(x, i) E4(x, i), E4(x, i + 4), E4(x, i + 8), E4(x, i + 12)
#define E32(x, i) E16(x, i), E16(x, i + 16)
#define L0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define L1 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define L2 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define L3 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

// 64 x 64, operands in shared memory; B is N x K (kBt = 0) or K x N (kBt = 1)
template <int kBt>
__device__ __forceinline__ void mm64(float (&x)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n\t.reg .pred add;\n\tsetp.ne.b32 add, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" L0 "," L1 "}, %32, %33, add, 1, 1, 0, %35;\n\t}"
      : E32(x, 0)
      : "l"(a), "l"(b), "r"(add), "n"(kBt));
}
// 64 x 128 += registers times K x N
__device__ __forceinline__ void mm128(float (&x)[64], const uint4& a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" L0 "," L1 "," L2 "," L3
               "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
               : E32(x, 0), E32(x, 32)
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "l"(b));
}
// x = A B^T over the head dimension, A 64 rows of a 128-row tile, B a 64-row tile
__device__ __forceinline__ void inner(float (&x)[32], uint32_t a, uint32_t b) {
  live(x);
  mm_begin();
#pragma unroll
  for (int kk = 0; kk < 8; ++kk)
    mm64<0>(x, op(a + (kk / 4) * K_PANEL + (kk % 4) * 32), op(b + (kk / 4) * Q_PANEL + (kk % 4) * 32), kk);
  mm_commit();
}

__device__ __forceinline__ float e2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bb(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
__device__ __forceinline__ float lo_of(uint32_t x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float hi_of(uint32_t x) { return __uint_as_float(x & 0xFFFF0000u); }

// 64 keys x 128 columns straight from the accumulators
__device__ __forceinline__ void write_rows(const float (&x)[64], float factor, __nv_bfloat16* out, int64_t row) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  uint32_t* a = reinterpret_cast<uint32_t*>(out + (row + warp * 16 + lane / 4) * HD) + lane % 4;
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    a[4 * j] = bb(x[4 * j] * factor, x[4 * j + 1] * factor);
    a[4 * j + 8 * HD / 2] = bb(x[4 * j + 2] * factor, x[4 * j + 3] * factor);
  }
}

// ---------------------------------------------------------------- kernels
__global__ void __launch_bounds__(256) pre(const uint4* o, const uint4* g, const float* l, float* lse2, float* delta) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;   // 16 threads a row
  const uint4 a = __ldcs(o + i), b = __ldcs(g + i);
  float s = lo_of(a.x) * lo_of(b.x) + hi_of(a.x) * hi_of(b.x);
  s += lo_of(a.y) * lo_of(b.y) + hi_of(a.y) * hi_of(b.y);
  s += lo_of(a.z) * lo_of(b.z) + hi_of(a.z) * hi_of(b.z);
  s += lo_of(a.w) * lo_of(b.w) + hi_of(a.w) * hi_of(b.w);
  for (int m = 1; m < 16; m *= 2) s += __shfl_xor_sync(0xffffffffu, s, m);
  if (threadIdx.x % 16 == 0) {
    delta[i / 16] = s;
    lse2[i / 16] = l[i / 16] * RLN2;
  }
}

__global__ void __launch_bounds__(512, 1)
    roles(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
          const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mg, const float* lse2,
          const float* delta, float* acc, __nv_bfloat16* dk_out, __nv_bfloat16* dv_out, int seq) {
  extern __shared__ char raw[];
  Smem& sm = *reinterpret_cast<Smem*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      mb_init(sm.full[i], 1);
      mb_init(sm.empty[i], 8);       // A and B
      mb_init(sm.ds_full[i], 4);     // B
      mb_init(sm.ds_empty[i], 4);    // C
    }
    mb_init(sm.kv_full, 1);
    mb_init(sm.kv_empty, 12);        // A, B, C
    mb_init(sm.p_full, 4);           // A
    mb_init(sm.p_empty, 4);          // B
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const int tiles = seq / KT, steps = seq / QT;
  const int pairs = tiles / 2;
  const int head = blockIdx.x / pairs * seq;
  const int pair = blockIdx.x % pairs;
  const int role = threadIdx.x / 128;
  const int t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
  const int c2 = lane % 4 * 2;
  const uint32_t k = sa(sm.k), v = sa(sm.v);
  uint32_t it = 0;   // steps of both tiles, counted alike by every role

  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      for (int half = 0; half < 2; ++half) {
        const int tile = half ? tiles - 1 - pair : pair;
        mb_wait(sm.kv_empty, half + 1);
        mb_tx(sm.kv_full, 4 * K_PANEL);
        for (int c = 0; c < 2; ++c) {
          load_box(sm.k + c * K_PANEL, mk, c * 64, head + tile * KT, sm.kv_full);
          load_box(sm.v + c * K_PANEL, mv, c * 64, head + tile * KT, sm.kv_full);
        }
        for (int m = 2 * tile; m < steps; ++m, ++it) {
          const uint32_t s = it % NST;
          const int row = head + m * QT;
          mb_wait(sm.empty[s], it / NST + 1);
          mb_tx(sm.full[s], 4 * Q_PANEL + 2 * QT * 4);
          for (int c = 0; c < 2; ++c) {
            load_box(sm.q[s] + c * Q_PANEL, mq, c * 64, row, sm.full[s]);
            load_box(sm.g[s] + c * Q_PANEL, mg, c * 64, row, sm.full[s]);
          }
          load_line(sm.lse[s], lse2 + row, QT * 4, sm.full[s]);
          load_line(sm.delta[s], delta + row, QT * 4, sm.full[s]);
        }
      }
    }
  } else if (role == 1) {
    // ---------------------------------------------------------------- A: S, P, dV
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    for (int half = 0; half < 2; ++half) {
      const int tile = half ? tiles - 1 - pair : pair;
      float dv0[64], dv1[64];
#pragma unroll
      for (int i = 0; i < 64; ++i) dv0[i] = dv1[i] = 0.f;
      mb_wait(sm.kv_full, half);
      for (int m = 2 * tile; m < steps; ++m, ++it) {
        const uint32_t s = it % NST;
        float x0[32], x1[32];
        uint4 p0[4], p1[4];
        mb_wait(sm.full[s], it / NST);
        inner(x0, k, sa(sm.q[s]));
        inner(x1, k + 64 * 128, sa(sm.q[s]));
        // first query minus my first key; positive differences are visible
        const int off = m * QT - tile * KT - warp * 16 - lane / 4 + c2;
        auto soften = [&](float(&x)[32], uint4(&p)[4], int shift) {
#pragma unroll
          for (int kk = 0; kk < 4; ++kk) {
            uint32_t r[4];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int j = 2 * kk + e;
              const float2 l = *reinterpret_cast<const float2*>(&sm.lse[s][8 * j + c2]);
              float a = e2(fmaf(x[4 * j], SM_SCALE * RLN2, -l.x));
              float b = e2(fmaf(x[4 * j + 1], SM_SCALE * RLN2, -l.y));
              float c = e2(fmaf(x[4 * j + 2], SM_SCALE * RLN2, -l.x));
              float d = e2(fmaf(x[4 * j + 3], SM_SCALE * RLN2, -l.y));
              if (m < 2 * tile + 2) {
                const int rel = off + 8 * j - shift;
                a = rel >= 0 ? a : 0.f;
                b = rel + 1 >= 0 ? b : 0.f;
                c = rel - 8 >= 0 ? c : 0.f;
                d = rel - 7 >= 0 ? d : 0.f;
              }
              r[2 * e] = bb(a, b);
              r[2 * e + 1] = bb(c, d);
            }
            p[kk] = make_uint4(r[0], r[1], r[2], r[3]);
          }
        };
        mm_wait<1>();
        live(x0);
        soften(x0, p0, 0);
        mb_wait(sm.p_empty, it + 1);
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) sm.p[kk * 128 + t] = p0[kk];
        mm_wait<0>();
        live(x1);
        soften(x1, p1, 64);
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) sm.p[(4 + kk) * 128 + t] = p1[kk];
        mb_arrive_warp(sm.p_full);
        const uint32_t g = sa(sm.g[s]);
        live(dv0);
        live(dv1);
        mm_begin();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mm128(dv0, p0[kk], op(g + kk * 2048, Q_PANEL));
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mm128(dv1, p1[kk], op(g + kk * 2048, Q_PANEL));
        mm_commit();
        mm_wait<0>();
        live(dv0);
        live(dv1);
        mb_arrive_warp(sm.empty[s]);
      }
      mb_arrive_warp(sm.kv_empty);
      const int64_t row = static_cast<int64_t>(head) + tile * KT;
      write_rows(dv0, 1.f, dv_out, row);
      write_rows(dv1, 1.f, dv_out, row + 64);
    }
  } else if (role == 2) {
    // ---------------------------------------------------------------- B: dP, dS, dK
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    const int qr = (lane & 7) + ((lane >> 4) << 3);
    const uint32_t st_off = qr * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (qr & 7)) << 4);
    for (int half = 0; half < 2; ++half) {
      const int tile = half ? tiles - 1 - pair : pair;
      float dk0[64], dk1[64];
#pragma unroll
      for (int i = 0; i < 64; ++i) dk0[i] = dk1[i] = 0.f;
      mb_wait(sm.kv_full, half);
      for (int m = 2 * tile; m < steps; ++m, ++it) {
        const uint32_t s = it % NST, b = it & 1;
        float x0[32], x1[32];
        uint4 d0[4], d1[4];
        mb_wait(sm.full[s], it / NST);
        inner(x0, v, sa(sm.g[s]));
        inner(x1, v + 64 * 128, sa(sm.g[s]));
        auto combine = [&](const float(&x)[32], uint4(&d)[4], const uint4* p) {
#pragma unroll
          for (int kk = 0; kk < 4; ++kk) {
            const uint4 w = p[kk * 128 + t];
            const float2 y0 = *reinterpret_cast<const float2*>(&sm.delta[s][16 * kk + c2]);
            const float2 y1 = *reinterpret_cast<const float2*>(&sm.delta[s][16 * kk + 8 + c2]);
            const float* z = x + 8 * kk;
            d[kk].x = bb(lo_of(w.x) * (z[0] - y0.x), hi_of(w.x) * (z[1] - y0.y));
            d[kk].y = bb(lo_of(w.y) * (z[2] - y0.x), hi_of(w.y) * (z[3] - y0.y));
            d[kk].z = bb(lo_of(w.z) * (z[4] - y1.x), hi_of(w.z) * (z[5] - y1.y));
            d[kk].w = bb(lo_of(w.w) * (z[6] - y1.x), hi_of(w.w) * (z[7] - y1.y));
          }
        };
        auto put = [&](const uint4(&d)[4], uint32_t base) {
#pragma unroll
          for (int kk = 0; kk < 4; ++kk)
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             base + st_off + kk * 16 * 128),
                         "r"(d[kk].x), "r"(d[kk].y), "r"(d[kk].z), "r"(d[kk].w)
                         : "memory");
        };
        mb_wait(sm.p_full, it);
        mm_wait<1>();
        live(x0);
        combine(x0, d0, sm.p);
        mm_wait<0>();
        live(x1);
        combine(x1, d1, sm.p + 4 * 128);
        mb_arrive_warp(sm.p_empty);
        const uint32_t q = sa(sm.q[s]);
        live(dk0);
        live(dk1);
        mm_begin();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mm128(dk0, d0[kk], op(q + kk * 2048, Q_PANEL));
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mm128(dk1, d1[kk], op(q + kk * 2048, Q_PANEL));
        mm_commit();
        mb_wait(sm.ds_empty[b], it / 2 + 1);
        put(d0, sa(sm.ds[b]));
        put(d1, sa(sm.ds[b]) + Q_PANEL);
        proxy_fence();
        mb_arrive_warp(sm.ds_full[b]);
        mm_wait<0>();
        live(dk0);
        live(dk1);
        mb_arrive_warp(sm.empty[s]);
      }
      mb_arrive_warp(sm.kv_empty);
      const int64_t row = static_cast<int64_t>(head) + tile * KT;
      write_rows(dk0, SM_SCALE, dk_out, row);
      write_rows(dk1, SM_SCALE, dk_out, row + 64);
    }
  } else {
    // ---------------------------------------------------------------- C: dQ
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    for (int half = 0; half < 2; ++half) {
      const int tile = half ? tiles - 1 - pair : pair;
      mb_wait(sm.kv_full, half);
      for (int m = 2 * tile; m < steps; ++m, ++it) {
        const uint32_t b = it & 1;
        mb_wait(sm.ds_full[b], it / 2);
        float* dst = acc + static_cast<int64_t>((head + m * QT) / QT) * (QT * HD);
#pragma unroll 1
        for (int c = 0; c < 2; ++c) {
          float x[32];
          live(x);
          mm_begin();
#pragma unroll
          for (int kk = 0; kk < 8; ++kk)
            mm64<1>(x, op(sa(sm.ds[b]) + (kk / 4) * Q_PANEL + (kk % 4) * 32), op(k + c * K_PANEL + kk * 2048), kk);
          mm_commit();
          if (t == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
          asm volatile("bar.sync 1, 128;" ::: "memory");
          mm_wait<0>();
          live(x);
          if (c == 1) mb_arrive_warp(sm.ds_empty[b]);
#pragma unroll
          for (int j = 0; j < 8; ++j)
            sm.dq[c][j * 128 + t] = make_float4(x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]);
          proxy_fence();
          asm volatile("bar.sync 1, 128;" ::: "memory");
          if (t == 0) {
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(
                             dst + c * 4096),
                         "r"(sa(sm.dq[c])), "r"(16384)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
          }
        }
      }
      mb_arrive_warp(sm.kv_empty);
    }
    if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// A warp takes 16 rows of a 64 x 128 tile; four lanes of a row swap so that each writes 16 bytes.
__global__ void __launch_bounds__(128) post(const float4* acc, uint4* dq) {
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, quad = lane % 4;
  const float4* src = acc + static_cast<int64_t>(blockIdx.x) * 2048 + t;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * QT + warp * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    uint32_t top[4], low[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float4 x = __ldcs(src + (4 * n + j) * 128);
      top[j] = bb(x.x * SM_SCALE, x.y * SM_SCALE);
      low[j] = bb(x.z * SM_SCALE, x.w * SM_SCALE);
    }
    // lane `quad` collects column block 4 n + quad: piece i comes from lane i of the quad
    uint32_t a[4], b[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t u = __shfl_sync(0xffffffffu, top[j], i, 4);
        const uint32_t w = __shfl_sync(0xffffffffu, low[j], i, 4);
        if (j == quad) {
          a[i] = u;
          b[i] = w;
        }
      }
    }
    dq[row * 16 + 4 * n + quad] = make_uint4(a[0], a[1], a[2], a[3]);
    dq[(row + 8) * 16 + 4 * n + quad] = make_uint4(b[0], b[1], b[2], b[3]);
  }
}

void encode(CUtensorMap* map, const tvm::ffi::TensorView& x, int64_t rows, int box_rows) {
  cuuint64_t extent[2] = {HD, static_cast<cuuint64_t>(rows)};
  cuuint64_t pitch[1] = {HD * 2};
  cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)};
  cuuint32_t unit[2] = {1, 1};
  CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data_ptr(), extent, pitch, box, unit,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != HD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 128]";
  const int64_t seq = Q.size(2), rows = Q.size(0) * Q.size(1) * seq;
  if (seq % 256) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256";
  if (rows == 0) return;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static float* work = nullptr;
  static int64_t work_rows = 0;
  if (rows > work_rows) {
    if (work) cudaFree(work);
    work = nullptr;
    work_rows = 0;
    if (cudaMalloc(reinterpret_cast<void**>(&work), rows * (HD + 2) * sizeof(float)) != cudaSuccess)
      TVM_FFI_THROW(RuntimeError) << "cudaMalloc failed";
    work_rows = rows;
  }
  float* acc = work;
  float* lse2 = acc + rows * HD;
  float* delta = lse2 + rows;

  CUtensorMap mq, mk, mv, mg;
  encode(&mq, Q, rows, QT);
  encode(&mk, K, rows, KT);
  encode(&mv, V, rows, KT);
  encode(&mg, dO, rows, QT);

  const int bytes = static_cast<int>(sizeof(Smem)) + 1024;
  const cudaError_t set = cudaFuncSetAttribute(roles, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (set != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(set);
  cudaMemsetAsync(acc, 0, rows * HD * sizeof(float), stream);
  pre<<<static_cast<unsigned>(rows / 16), 256, 0, stream>>>(
      static_cast<const uint4*>(O.data_ptr()), static_cast<const uint4*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), lse2, delta);
  roles<<<static_cast<unsigned>(rows / (2 * KT)), 512, bytes, stream>>>(
      mq, mk, mv, mg, lse2, delta, acc, static_cast<__nv_bfloat16*>(dK.data_ptr()),
      static_cast<__nv_bfloat16*>(dV.data_ptr()), static_cast<int>(seq));
  post<<<static_cast<unsigned>(rows / QT), 128, 0, stream>>>(reinterpret_cast<const float4*>(acc),
                                                             static_cast<uint4*>(dQ.data_ptr()));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch failed: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
