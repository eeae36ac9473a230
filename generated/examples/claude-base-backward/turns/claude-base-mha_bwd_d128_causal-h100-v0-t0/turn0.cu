#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 128;
constexpr int BQ = 64;
constexpr int BKV = 128;
constexpr int STAGES = 2;
constexpr float kLog2e = 1.44269504088896340736f;

struct __align__(1024) Smem {
  __nv_bfloat16 k[2][BKV][64];           // halves of D, 128-byte swizzle
  __nv_bfloat16 v[2][BKV][64];
  __nv_bfloat16 q[STAGES][2][BQ][64];
  __nv_bfloat16 d_o[STAGES][2][BQ][64];
  __nv_bfloat16 ds[2][BKV][BQ];          // dS^T, rows are keys
  float dq[4][BQ][32];                   // quarters of D, 128-byte swizzle
  float lse[STAGES][BQ];
  float delta[STAGES][BQ];
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
  uint64_t kv_full;
};

__device__ __forceinline__ uint32_t s2u(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ bool elect_one() {
  uint32_t pred;
  asm volatile(
      "{\n\t"
      ".reg .pred P;\n\t"
      "elect.sync _|P, 0xffffffff;\n\t"
      "selp.b32 %0, 1, 0, P;\n\t"
      "}"
      : "=r"(pred));
  return pred != 0;
}

__device__ __forceinline__ void barrier_init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(s2u(bar)), "r"(count));
}
__device__ __forceinline__ void barrier_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(s2u(bar)) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(s2u(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* bar, int parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred P1;\n\t"
      "LAB_WAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n\t"
      "@P1 bra DONE;\n\t"
      "bra LAB_WAIT;\n\t"
      "DONE:\n\t"
      "}" ::"r"(s2u(bar)),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void tma_load(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          s2u(dst)),
      "l"(reinterpret_cast<uint64_t>(map)), "r"(s2u(bar)), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_load_1d(void* dst, const void* src, int bytes, uint64_t* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(s2u(dst)),
               "l"(src), "r"(bytes), "r"(s2u(bar))
               : "memory");
}
__device__ __forceinline__ void tma_reduce_add(const CUtensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(s2u(src)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(
                   reinterpret_cast<uint64_t>(map)),
               "r"(s2u(src)), "r"(x), "r"(y)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }

__device__ __forceinline__ uint64_t desc(uint32_t addr, int lbo_bytes, int sbo_bytes) {
  return (uint64_t)((addr & 0x3FFFF) >> 4) | ((uint64_t)(lbo_bytes >> 4) << 16) | ((uint64_t)(sbo_bytes >> 4) << 32) |
         ((uint64_t)1 << 62);
}

__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// 64 x 64 x 16, both operands in shared memory.
template <int kTransA, int kTransB>
__device__ __forceinline__ void mma64(float (&d)[8][4], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,   %1,   %2,   %3,   %4,   %5,   %6,   %7,   "
      " %8,   %9,   %10,  %11,  %12,  %13,  %14,  %15,  "
      " %16,  %17,  %18,  %19,  %20,  %21,  %22,  %23,  "
      " %24,  %25,  %26,  %27,  %28,  %29,  %30,  %31},  "
      " %32, %33, p, %35, %36, %37, %38;\n"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
      : "l"(da), "l"(db), "r"(scale_d), "n"(1), "n"(1), "n"(kTransA), "n"(kTransB));
}

// 64 x 128 x 16, A in registers, B with N contiguous.
__device__ __forceinline__ void mma128(float (&d)[16][4], const uint32_t* a, uint64_t db) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,   %1,   %2,   %3,   %4,   %5,   %6,   %7,   "
      " %8,   %9,   %10,  %11,  %12,  %13,  %14,  %15,  "
      " %16,  %17,  %18,  %19,  %20,  %21,  %22,  %23,  "
      " %24,  %25,  %26,  %27,  %28,  %29,  %30,  %31,  "
      " %32,  %33,  %34,  %35,  %36,  %37,  %38,  %39,  "
      " %40,  %41,  %42,  %43,  %44,  %45,  %46,  %47,  "
      " %48,  %49,  %50,  %51,  %52,  %53,  %54,  %55,  "
      " %56,  %57,  %58,  %59,  %60,  %61,  %62,  %63},  "
      "{%64,  %65,  %66,  %67},  %68, 1, 1, 1, 1;\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]),
        "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]),
        "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]), "+f"(d[12][0]),
        "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]),
        "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]),
        "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db));
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf16x2(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
__device__ __forceinline__ void stsm4(void* p, const uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.x4.m8n8.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(s2u(p)), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__global__ void __launch_bounds__(256) prepare(const uint4* o, const uint4* d_o, float* delta, float4* dq, int rows) {
  const int row = blockIdx.x * 16 + threadIdx.x / 16;
  const int c = threadIdx.x % 16;
  if (row >= rows) return;
  uint4 x = o[row * 16LL + c], y = d_o[row * 16LL + c];
  const __nv_bfloat162* px = reinterpret_cast<const __nv_bfloat162*>(&x);
  const __nv_bfloat162* py = reinterpret_cast<const __nv_bfloat162*>(&y);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = __bfloat1622float2(px[i]);
    const float2 b = __bfloat1622float2(py[i]);
    sum = fmaf(a.x, b.x, fmaf(a.y, b.y, sum));
  }
#pragma unroll
  for (int m = 1; m < 16; m *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (c == 0) delta[row] = sum;
  dq[row * 32LL + c] = make_float4(0, 0, 0, 0);
  dq[row * 32LL + c + 16] = make_float4(0, 0, 0, 0);
}

__global__ void __launch_bounds__(256) finish(const float4* acc, uint2* dq, float scale, long long n) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) {
    const float4 v = acc[i];
    dq[i] = make_uint2(bf16x2(v.x * scale, v.y * scale), bf16x2(v.z * scale, v.w * scale));
  }
}

__global__ void __launch_bounds__(384, 1)
    attention_backward(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
                       const __grid_constant__ CUtensorMap tv, const __grid_constant__ CUtensorMap tdo,
                       const __grid_constant__ CUtensorMap tdq, const __grid_constant__ CUtensorMap tdk,
                       const __grid_constant__ CUtensorMap tdv, const float* lse, const float* delta, int seq,
                       float scale) {
  extern __shared__ char raw[];
  Smem& sm = *reinterpret_cast<Smem*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t(1023));

  // Blocks of early keys see most queries: they come first.
  const int kv0 = blockIdx.x * BKV;
  const int base_row = blockIdx.y * seq;
  const int first = kv0 / BQ;
  const int tiles = seq / BQ - first;
  const int group = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    barrier_init(&sm.kv_full, 1);
    for (int s = 0; s < STAGES; ++s) {
      barrier_init(&sm.full[s], 1);
      barrier_init(&sm.empty[s], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x < 32 && elect_one()) {
      barrier_expect(&sm.kv_full, sizeof(sm.k) + sizeof(sm.v));
      for (int h = 0; h < 2; ++h) {
        tma_load(sm.k[h], &tk, &sm.kv_full, h * 64, base_row + kv0);
        tma_load(sm.v[h], &tv, &sm.kv_full, h * 64, base_row + kv0);
      }
      for (int i = 0; i < tiles; ++i) {
        const int s = i % STAGES;
        const int row = base_row + (first + i) * BQ;
        barrier_wait(&sm.empty[s], ((i / STAGES) & 1) ^ 1);
        barrier_expect(&sm.full[s], 2 * BQ * D * 2 + 2 * BQ * 4);
        for (int h = 0; h < 2; ++h) {
          tma_load(sm.q[s][h], &tq, &sm.full[s], h * 64, row);
          tma_load(sm.d_o[s][h], &tdo, &sm.full[s], h * 64, row);
        }
        tma_load_1d(sm.lse[s], lse + row, BQ * 4, &sm.full[s]);
        tma_load_1d(sm.delta[s], delta + row, BQ * 4, &sm.full[s]);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int wg = group - 1;
  const int tid = threadIdx.x % 128;
  const int warp = tid / 32, lane = tid % 32;
  const int g = lane / 4, t = lane % 4;
  const float scale_log2 = scale * kLog2e;
  const int my_key = kv0 + wg * 64 + warp * 16 + g;                        // and + 8
  const int sm_row = wg * 64 + warp * 16 + (lane / 8 % 2) * 8 + lane % 8;  // of stmatrix

  float dk[16][4], dv[16][4];
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int c = 0; c < 4; ++c) dk[j][c] = dv[j][c] = 0.f;

  barrier_wait(&sm.kv_full, 0);
  for (int i = 0; i < tiles; ++i) {
    const int s = i % STAGES;
    barrier_wait(&sm.full[s], (i / STAGES) & 1);

    float p[8][4], dp[8][4];
    wg_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      mma64<0, 0>(p, desc(s2u(&sm.k[k / 4][wg * 64][(k % 4) * 16]), 1, 1024),
                  desc(s2u(&sm.q[s][k / 4][0][(k % 4) * 16]), 1, 1024), k);
    wg_commit();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      mma64<0, 0>(dp, desc(s2u(&sm.v[k / 4][wg * 64][(k % 4) * 16]), 1, 1024),
                  desc(s2u(&sm.d_o[s][k / 4][0][(k % 4) * 16]), 1, 1024), k);
    wg_commit();
    wg_wait<1>();

    const int query = (first + i) * BQ + 2 * t;
    const bool diagonal = i < BKV / BQ;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(&sm.lse[s][8 * j + 2 * t]);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float e = fast_exp2(p[j][c] * scale_log2 - (c % 2 ? l.y : l.x) * kLog2e);
        const bool seen = !diagonal || query + 8 * j + c % 2 >= my_key + (c / 2) * 8;
        p[j][c] = seen ? e : 0.f;
      }
    }
    uint32_t pa[16], da[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      pa[2 * j] = bf16x2(p[j][0], p[j][1]);
      pa[2 * j + 1] = bf16x2(p[j][2], p[j][3]);
    }
    wg_wait<0>();
    wg_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) mma128(dv, pa + 4 * k, desc(s2u(&sm.d_o[s][0][16 * k][0]), BQ * 128, 1024));
    wg_commit();

#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(&sm.delta[s][8 * j + 2 * t]);
      da[2 * j] = bf16x2(p[j][0] * (dp[j][0] - d.x), p[j][1] * (dp[j][1] - d.y));
      da[2 * j + 1] = bf16x2(p[j][2] * (dp[j][2] - d.x), p[j][3] * (dp[j][3] - d.y));
    }
    __nv_bfloat16(*ds)[BQ] = sm.ds[i & 1];
#pragma unroll
    for (int k = 0; k < 4; ++k) stsm4(&ds[sm_row][((2 * k + lane / 16) ^ (sm_row & 7)) * 8], da + 4 * k);
    // The staging tile of dQ is free again before anybody passes the barrier.
    if (tid == 0) bulk_wait_read();
    async_fence();
    bar_sync(1, 256);

    float dq[8][4];
    wg_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      mma64<1, 1>(dq, desc(s2u(&ds[16 * k][0]), BKV * 128, 1024), desc(s2u(&sm.k[wg][16 * k][0]), BKV * 128, 1024), k);
    wg_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) mma128(dk, da + 4 * k, desc(s2u(&sm.q[s][0][16 * k][0]), BQ * 128, 1024));
    wg_commit();
    wg_wait<1>();

    const int r = warp * 16 + g;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float* quarter = &sm.dq[2 * wg + j / 4][0][0];
      const int chunk = (j % 4) * 2 + t / 2;
      const int inner = (t % 2) * 2;
      *reinterpret_cast<float2*>(quarter + r * 32 + (chunk ^ (r & 7)) * 4 + inner) = make_float2(dq[j][0], dq[j][1]);
      *reinterpret_cast<float2*>(quarter + (r + 8) * 32 + (chunk ^ (r & 7)) * 4 + inner) =
          make_float2(dq[j][2], dq[j][3]);
    }
    async_fence();
    bar_sync(2 + wg, 128);
    if (tid == 0) {
      const int row = base_row + (first + i) * BQ;
      tma_reduce_add(&tdq, sm.dq[2 * wg], wg * 64, row);
      tma_reduce_add(&tdq, sm.dq[2 * wg + 1], wg * 64 + 32, row);
      bulk_commit();
    }
    wg_wait<0>();
    if (tid == 0) barrier_arrive(&sm.empty[s]);
  }

  bar_sync(1, 256);  // K is read by both groups
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    uint32_t a[4], b[4];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      a[2 * c] = bf16x2(dk[2 * k + c][0] * scale, dk[2 * k + c][1] * scale);
      a[2 * c + 1] = bf16x2(dk[2 * k + c][2] * scale, dk[2 * k + c][3] * scale);
      b[2 * c] = bf16x2(dv[2 * k + c][0], dv[2 * k + c][1]);
      b[2 * c + 1] = bf16x2(dv[2 * k + c][2], dv[2 * k + c][3]);
    }
    const int at = ((2 * (k % 4) + lane / 16) ^ (sm_row & 7)) * 8;
    stsm4(&sm.k[k / 4][sm_row][at], a);
    stsm4(&sm.v[k / 4][sm_row][at], b);
  }
  async_fence();
  bar_sync(2 + wg, 128);
  if (tid == 0) {
    for (int h = 0; h < 2; ++h) {
      tma_store(&tdk, sm.k[h][wg * 64], h * 64, base_row + kv0 + wg * 64);
      tma_store(&tdv, sm.v[h][wg * 64], h * 64, base_row + kv0 + wg * 64);
    }
    bulk_commit();
    bulk_wait();
  }
}

CUtensorMap encode(void* p, CUtensorMapDataType type, int bytes, int64_t rows, uint32_t box_x, uint32_t box_y) {
  CUtensorMap map;
  cuuint64_t dims[] = {(cuuint64_t)D, (cuuint64_t)rows};
  cuuint64_t strides[] = {(cuuint64_t)(D * bytes)};
  cuuint32_t box[] = {box_x, box_y};
  cuuint32_t ones[] = {1, 1};
  CUresult result =
      cuTensorMapEncodeTiled(&map, type, 2, p, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: error " << static_cast<int>(result);
  return map;
}

void ok(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  const int heads = static_cast<int>(Q.size(0) * Q.size(1));
  const int seq = static_cast<int>(Q.size(2));
  const int rows = heads * seq;
  if (seq % BKV) TVM_FFI_THROW(RuntimeError) << "expected S to be a multiple of " << BKV;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  void* scratch = nullptr;
  const size_t dq_bytes = static_cast<size_t>(rows) * D * sizeof(float);
  ok(cudaMallocAsync(&scratch, dq_bytes + static_cast<size_t>(rows) * sizeof(float), stream), "cudaMallocAsync");
  float* dq_acc = static_cast<float*>(scratch);
  float* delta = dq_acc + static_cast<size_t>(rows) * D;
  const float scale = 0.088388347648318447f;

  prepare<<<(rows + 15) / 16, 256, 0, stream>>>(static_cast<const uint4*>(O.data_ptr()),
                                                static_cast<const uint4*>(dO.data_ptr()), delta,
                                                reinterpret_cast<float4*>(dq_acc), rows);
  ok(cudaGetLastError(), "prepare");

  const auto bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUtensorMap tq = encode(Q.data_ptr(), bf16, 2, rows, 64, BQ);
  const CUtensorMap tk = encode(K.data_ptr(), bf16, 2, rows, 64, BKV);
  const CUtensorMap tv = encode(V.data_ptr(), bf16, 2, rows, 64, BKV);
  const CUtensorMap tdo = encode(dO.data_ptr(), bf16, 2, rows, 64, BQ);
  const CUtensorMap tdq = encode(dq_acc, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, rows, 32, BQ);
  const CUtensorMap tdk = encode(dK.data_ptr(), bf16, 2, rows, 64, 64);
  const CUtensorMap tdv = encode(dV.data_ptr(), bf16, 2, rows, 64, 64);
  const int smem = sizeof(Smem) + 1024;
  ok(cudaFuncSetAttribute(attention_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, smem), "attribute");
  attention_backward<<<dim3(seq / BKV, heads), 384, smem, stream>>>(tq, tk, tv, tdo, tdq, tdk, tdv,
                                                                   static_cast<const float*>(L.data_ptr()), delta, seq,
                                                                   scale);
  ok(cudaGetLastError(), "attention_backward");

  const long long n = static_cast<long long>(rows) * D / 4;
  finish<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(reinterpret_cast<const float4*>(dq_acc),
                                                                   static_cast<uint2*>(dQ.data_ptr()), scale, n);
  ok(cudaGetLastError(), "finish");
  ok(cudaFreeAsync(scratch, stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
