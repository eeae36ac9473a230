// mha_bwd_d64: prep (delta, L*log2e, zero dQ scratch) -> fused backward -> dQ conversion.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 64;
constexpr int kBQ = 128;
constexpr int kBK = 128;
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kScale = 0.125f;

struct Smem {
  uint8_t k[kBK * 128];
  uint8_t v[kBK * 128];
  uint8_t q[kStages][kBQ * 128];
  uint8_t g[kStages][kBQ * 128];   // dO
  uint8_t ds[2][2][kBQ * 128];     // [buffer][key half][query][64 keys], K-major, 128B swizzle
  float dq[2][64 * kD];            // per warpgroup, fragment order
  float lse[kStages][kBQ];
  float delta[kStages][kBQ];
  uint64_t full[kStages];
  uint64_t empty[kStages];
  uint64_t kv_full;
  uint64_t kv_empty;
};

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void bar_init(uint64_t* b, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_u32(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_u32(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_u32(b)) : "memory");
}
__device__ __forceinline__ void bar_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred P;\n"
      "W_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n"
      "@P bra D_%=;\n"
      "bra W_%=;\n"
      "D_%=:\n"
      "}\n" ::"r"(smem_u32(b)), "r"(parity)
      : "memory");
}
__device__ __forceinline__ void tma_load(void* dst, const CUtensorMap* map, int x, int y, uint64_t* b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          smem_u32(dst)),
      "l"(map), "r"(x), "r"(y), "r"(smem_u32(b))
      : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x),
               "r"(y), "r"(smem_u32(src))
               : "memory");
}
__device__ __forceinline__ void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   smem_u32(dst)),
               "l"(src), "r"(bytes), "r"(smem_u32(b))
               : "memory");
}
__device__ __forceinline__ void bulk_reduce(float* dst, const void* src, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
               "r"(smem_u32(src)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void bulk_wait_all() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void named_sync(int id, int n) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}

__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// 128-byte swizzle, 8-row groups 1024 bytes apart.
__device__ __forceinline__ uint64_t desc(uint32_t addr) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

#define ACC8(d, i)                                                                                              \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
#define ACC32(d, i) ACC8(d, i), ACC8(d, i + 8), ACC8(d, i + 16), ACC8(d, i + 24)
#define STR32                                                                                                \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28," \
  "%29,%30,%31"
#define STR64                                                                                                   \
  STR32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56," \
        "%57,%58,%59,%60,%61,%62,%63"

// both operands K-major in shared memory
__device__ __forceinline__ void mma_n128(float (&d)[64], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" STR64 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : ACC32(d, 0), ACC32(d, 32)
      : "l"(a), "l"(b), "r"(acc));
}
// A in registers, B MN-major
__device__ __forceinline__ void mma_n64_rs(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" STR32 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
      : ACC32(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// A K-major, B MN-major, both in shared memory
__device__ __forceinline__ void mma_n64_ss(float (&d)[32], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" STR32 "}, %32, %33, p, 1, 1, 0, 1;\n}\n"
      : ACC32(d, 0)
      : "l"(a), "l"(b), "r"(acc));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}

// ------------------------------------------------------------------------------------------------ prep
__global__ void __launch_bounds__(256) prep(const uint4* o, const uint4* g, const float* l, float* delta, float* lse2,
                                            float4* dq, int64_t rows) {
  const int64_t id = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;  // 8 threads a row
  const int64_t row = id / 8;
  if (row >= rows) return;
  uint4 a = o[id], b = g[id];
  const __nv_bfloat162* pa = reinterpret_cast<const __nv_bfloat162*>(&a);
  const __nv_bfloat162* pb = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pa[i]), y = __bfloat1622float2(pb[i]);
    sum += x.x * y.x + x.y * y.y;
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 4);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (id % 8 == 0) {
    delta[row] = sum;
    lse2[row] = l[row] * kLog2e;
  }
  // zero the scratch, coalesced: 512 float4 a block of 256 threads
  const int64_t base = static_cast<int64_t>(blockIdx.x) * 512 + threadIdx.x;
  dq[base] = make_float4(0.f, 0.f, 0.f, 0.f);
  dq[base + 256] = make_float4(0.f, 0.f, 0.f, 0.f);
}

// ------------------------------------------------------------------------------------------------ backward
__global__ void __launch_bounds__(kThreads, 1)
    backward(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
             const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mg,
             const __grid_constant__ CUtensorMap mdk, const __grid_constant__ CUtensorMap mdv, const float* lse2,
             const float* delta, float* dq_scratch, int seq, int tiles) {
  extern __shared__ uint8_t raw[];
  Smem& sm = *reinterpret_cast<Smem*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~static_cast<uintptr_t>(1023));
  const int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      bar_init(&sm.full[i], 1);
      bar_init(&sm.empty[i], 8);
    }
    bar_init(&sm.kv_full, 1);
    bar_init(&sm.kv_empty, 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const int nq = seq / kBQ;
  const int nk = seq / kBK;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      int it = 0, round = 0;
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++round) {
        const int head_row = (tile / nk) * seq;
        const int key_row = head_row + (tile % nk) * kBK;
        bar_wait(&sm.kv_empty, (round & 1) ^ 1);
        bar_expect(&sm.kv_full, 2 * kBK * 128);
        tma_load(sm.k, &mk, 0, key_row, &sm.kv_full);
        tma_load(sm.v, &mv, 0, key_row, &sm.kv_full);
        for (int i = 0; i < nq; ++i, ++it) {
          const int s = it % kStages;
          bar_wait(&sm.empty[s], ((it / kStages) & 1) ^ 1);
          bar_expect(&sm.full[s], 2 * kBQ * 128 + 2 * kBQ * 4);
          const int row = head_row + i * kBQ;
          tma_load(sm.q[s], &mq, 0, row, &sm.full[s]);
          tma_load(sm.g[s], &mg, 0, row, &sm.full[s]);
          bulk_load(sm.lse[s], lse2 + row, kBQ * 4, &sm.full[s]);
          bulk_load(sm.delta[s], delta + row, kBQ * 4, &sm.full[s]);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int w = wg - 1;
    const int t = threadIdx.x % 128;
    const int warp = t / 32, lane = t % 32;
    const int c2 = (lane % 4) * 2;
    const uint32_t k_addr = smem_u32(sm.k), v_addr = smem_u32(sm.v);
    const uint64_t k_rows = desc(k_addr + w * 8192), v_rows = desc(v_addr + w * 8192);
    const uint64_t k_all = desc(k_addr);
    // stmatrix.trans row of this lane: query (lane & 7) + 8 * (lane >> 4), key chunk of 8
    const int st_q = (lane & 7) + ((lane >> 4) << 3);
    const int st_chunk = 2 * warp + ((lane >> 3) & 1);
    const uint32_t st_off = st_q * 128 + ((st_chunk ^ (st_q & 7)) << 4);

    int it = 0, round = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++round) {
      const int head_row = (tile / nk) * seq;
      const int key_row = head_row + (tile % nk) * kBK;
      float dk[32], dv[32], s[64];
#pragma unroll
      for (int i = 0; i < 32; ++i) dk[i] = dv[i] = 0.f;
      bar_wait(&sm.kv_full, round & 1);
      {
        const int st = it % kStages;
        bar_wait(&sm.full[st], (it / kStages) & 1);
        const uint64_t qd = desc(smem_u32(sm.q[st]));
        pin(s);
        wg_fence();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mma_n128(s, k_rows + kk * 2, qd + kk * 2, kk != 0);
        wg_commit();
      }
      for (int i = 0; i < nq; ++i, ++it) {
        const int st = it % kStages;
        const uint64_t qd = desc(smem_u32(sm.q[st])), gd = desc(smem_u32(sm.g[st]));
        float dp[64];
        pin(dp);
        wg_fence();
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) mma_n128(dp, v_rows + kk * 2, gd + kk * 2, kk != 0);
        wg_commit();
        wg_wait<1>();
        pin(s);
        const float* lse = sm.lse[st];
        const float* del = sm.delta[st];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float2 l = *reinterpret_cast<const float2*>(lse + 8 * j + c2);
          s[4 * j + 0] = ex2(s[4 * j + 0] * (kScale * kLog2e) - l.x);
          s[4 * j + 1] = ex2(s[4 * j + 1] * (kScale * kLog2e) - l.y);
          s[4 * j + 2] = ex2(s[4 * j + 2] * (kScale * kLog2e) - l.x);
          s[4 * j + 3] = ex2(s[4 * j + 3] * (kScale * kLog2e) - l.y);
        }
        wg_wait<0>();
        pin(dp);
        uint32_t p[32], ds[32];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const float2 e = *reinterpret_cast<const float2*>(del + 8 * j + c2);
          p[2 * j] = pack(s[4 * j], s[4 * j + 1]);
          p[2 * j + 1] = pack(s[4 * j + 2], s[4 * j + 3]);
          ds[2 * j] = pack(s[4 * j] * (dp[4 * j] - e.x), s[4 * j + 1] * (dp[4 * j + 1] - e.y));
          ds[2 * j + 1] = pack(s[4 * j + 2] * (dp[4 * j + 2] - e.x), s[4 * j + 3] * (dp[4 * j + 3] - e.y));
        }
        // dV += P^T dO
        pin(dv);
        wg_fence();
#pragma unroll
        for (int kk = 0; kk < 8; ++kk) mma_n64_rs(dv, p + 4 * kk, gd + kk * 128);
        wg_commit();
        // dS, transposed back to [query][key]
        const uint32_t ds_buf = smem_u32(sm.ds[it & 1][0]);
        {
          const uint32_t base = ds_buf + w * (kBQ * 128) + st_off;
#pragma unroll
          for (int jj = 0; jj < 8; ++jj) {
            asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                             base + jj * 16 * 128),
                         "r"(ds[4 * jj]), "r"(ds[4 * jj + 1]), "r"(ds[4 * jj + 2]), "r"(ds[4 * jj + 3])
                         : "memory");
          }
        }
        fence_async();
        // dK += dS^T Q
        pin(dk);
        wg_fence();
#pragma unroll
        for (int kk = 0; kk < 8; ++kk) mma_n64_rs(dk, ds + 4 * kk, qd + kk * 128);
        wg_commit();
        named_sync(1, 256);
        // dQ rows 64 w .. 64 w + 63 of this tile over all 128 keys
        float dq[32];
        pin(dq);
        wg_fence();
#pragma unroll
        for (int kk = 0; kk < 8; ++kk) {
          const uint64_t a = desc(ds_buf + (kk / 4) * (kBQ * 128) + w * 8192 + (kk % 4) * 32);
          mma_n64_ss(dq, a, k_all + kk * 128, kk != 0);
        }
        wg_commit();
        wg_wait<1>();  // dV and dK
        pin(dv);
        pin(dk);
        if (lane == 0) bar_arrive(&sm.empty[st]);
        if (i + 1 < nq) {
          const int sn = (it + 1) % kStages;
          bar_wait(&sm.full[sn], ((it + 1) / kStages) & 1);
          const uint64_t qn = desc(smem_u32(sm.q[sn]));
          pin(s);
          wg_fence();
#pragma unroll
          for (int kk = 0; kk < 4; ++kk) mma_n128(s, k_rows + kk * 2, qn + kk * 2, kk != 0);
          wg_commit();
          wg_wait<1>();
        } else {
          wg_wait<0>();
        }
        pin(dq);
        if (t == 0) bulk_wait_read();
        named_sync(2 + w, 128);
        float4* stage = reinterpret_cast<float4*>(sm.dq[w]);
#pragma unroll
        for (int j = 0; j < 8; ++j)
          stage[j * 128 + t] = make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]);
        fence_async();
        named_sync(2 + w, 128);
        if (t == 0) {
          const int64_t tile64 = (head_row + i * kBQ) / 64 + w;
          bulk_reduce(dq_scratch + tile64 * (64 * kD), stage, 64 * kD * 4);
          bulk_commit();
        }
      }
      // epilogue: dK over K, dV over V, each warpgroup its own 64 rows
      named_sync(1, 256);
      {
        const int row = 16 * warp + (lane & 15);
        const uint32_t kb = k_addr + w * 8192 + row * 128, vb = v_addr + w * 8192 + row * 128;
#pragma unroll
        for (int jj = 0; jj < 4; ++jj) {
          const uint32_t off = ((2 * jj + (lane >> 4)) ^ (row & 7)) << 4;
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(vb + off),
                       "r"(pack(dv[8 * jj], dv[8 * jj + 1])), "r"(pack(dv[8 * jj + 2], dv[8 * jj + 3])),
                       "r"(pack(dv[8 * jj + 4], dv[8 * jj + 5])), "r"(pack(dv[8 * jj + 6], dv[8 * jj + 7]))
                       : "memory");
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(kb + off),
                       "r"(pack(dk[8 * jj] * kScale, dk[8 * jj + 1] * kScale)),
                       "r"(pack(dk[8 * jj + 2] * kScale, dk[8 * jj + 3] * kScale)),
                       "r"(pack(dk[8 * jj + 4] * kScale, dk[8 * jj + 5] * kScale)),
                       "r"(pack(dk[8 * jj + 6] * kScale, dk[8 * jj + 7] * kScale))
                       : "memory");
        }
      }
      fence_async();
      named_sync(2 + w, 128);
      if (t == 0) {
        tma_store(&mdv, sm.v + w * 8192, 0, key_row + w * 64);
        tma_store(&mdk, sm.k + w * 8192, 0, key_row + w * 64);
        bulk_commit();
        bulk_wait_read();
        bar_arrive(&sm.kv_empty);
      }
    }
    if (t == 0) bulk_wait_all();
  }
}

// ------------------------------------------------------------------------------------------------ dQ conversion
__global__ void __launch_bounds__(128) convert(const float4* scratch, __nv_bfloat162* dq) {
  const int t = threadIdx.x, warp = t / 32, lane = t % 32;
  const float4* src = scratch + static_cast<int64_t>(blockIdx.x) * 1024;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 64 + 16 * warp + lane / 4;
  float4 v[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) v[j] = __ldcs(src + j * 128 + t);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int col = 4 * j + lane % 4;
    dq[row * 32 + col] = __floats2bfloat162_rn(v[j].x * kScale, v[j].y * kScale);
    dq[(row + 8) * 32 + col] = __floats2bfloat162_rn(v[j].z * kScale, v[j].w * kScale);
  }
}

CUtensorMap make_map(void* ptr, int64_t rows, int box_rows) {
  CUtensorMap map;
  cuuint64_t dims[2] = {kD, static_cast<cuuint64_t>(rows)};
  cuuint64_t strides[1] = {kD * 2};
  cuuint32_t box[2] = {kD, static_cast<cuuint32_t>(box_rows)};
  cuuint32_t elem[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, ptr, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
  return map;
}

float* scratch_for(int64_t floats) {
  static float* buffer = nullptr;
  static int64_t have = 0;
  if (floats > have) {
    if (buffer) cudaFree(buffer);
    buffer = nullptr;
    have = 0;
    if (cudaMalloc(&buffer, floats * sizeof(float)) != cudaSuccess)
      TVM_FFI_THROW(RuntimeError) << "no memory for scratch";
    have = floats;
  }
  return buffer;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 64]";
  const int64_t seq = Q.size(2);
  const int64_t rows = Q.size(0) * Q.size(1) * seq;
  if (rows == 0) return;
  if (seq % 128) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128";
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  float* dq = scratch_for(rows * kD + 2 * rows);
  float* delta = dq + rows * kD;
  float* lse2 = delta + rows;

  const CUtensorMap mq = make_map(Q.data_ptr(), rows, kBQ), mk = make_map(K.data_ptr(), rows, kBK);
  const CUtensorMap mv = make_map(V.data_ptr(), rows, kBK), mg = make_map(dO.data_ptr(), rows, kBQ);
  const CUtensorMap mdk = make_map(dK.data_ptr(), rows, 64), mdv = make_map(dV.data_ptr(), rows, 64);

  int device = 0, sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  const int smem = static_cast<int>(sizeof(Smem)) + 1024;
  cudaFuncSetAttribute(backward, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);

  prep<<<static_cast<unsigned>(rows / 32), 256, 0, stream>>>(
      static_cast<const uint4*>(O.data_ptr()), static_cast<const uint4*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), delta, lse2, reinterpret_cast<float4*>(dq), rows);
  const int tiles = static_cast<int>(rows / kBK);
  backward<<<tiles < sms ? tiles : sms, kThreads, smem, stream>>>(mq, mk, mv, mg, mdk, mdv, lse2, delta, dq,
                                                                   static_cast<int>(seq), tiles);
  convert<<<static_cast<unsigned>(rows / 64), 128, 0, stream>>>(reinterpret_cast<const float4*>(dq),
                                                                static_cast<__nv_bfloat162*>(dQ.data_ptr()));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching mha_bwd_d64: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
