// mha_bwd_d64_causal: 2-CTA clusters, TMA multicast, DSMEM exchange of dS, float4 atomics for dQ.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int D = 64;
constexpr int TQ = 128;          // queries per iteration
constexpr int TK = 128;          // keys per CTA, 256 per cluster
constexpr int STAGES = 2;
constexpr float LOG2E = 1.4426950408889634f;
constexpr float SCALE = 0.125f;

struct Shared {
  unsigned char k[2][TK * 128];      // both CTAs' keys
  unsigned char v[TK * 128];
  unsigned char q[STAGES][TQ * 128];
  unsigned char g[STAGES][TQ * 128];
  unsigned char ds[4][64 * 128];     // [64-key block of the cluster][my 64 queries][64 keys]
  unsigned char out[2][64 * 128];    // to the peer, one per warpgroup
  float lse[STAGES][TQ];
  float delta[STAGES][TQ];
  uint64_t kv_full;
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
  uint64_t ds_full;
  uint64_t ds_free;
};

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}
__device__ __forceinline__ void arrive_tx(uint64_t* bar, uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}
__device__ __forceinline__ void arrive_local(uint64_t* bar) {
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar);
}
// arrival on the same barrier of CTA `rank` of the cluster (also my own)
__device__ __forceinline__ void arrive_at(uint64_t* bar, unsigned rank) {
  uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(bar)), r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(r) : "memory");
}
__device__ __forceinline__ uint64_t make_desc(const void* p) {
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t{1} << 16) | (uint64_t{1024 >> 4} << 32) | (uint64_t{1} << 62);
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void keep(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

#define R4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define R16(x, i) R4(x, i), R4(x, i + 4), R4(x, i + 8), R4(x, i + 12)
#define R32(x, i) R16(x, i), R16(x, i + 16)

// 64 x 128 += A(64 x 16, K-major) B(16 x 128, K-major)
__device__ __forceinline__ void mma128(float (&x)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, add, 1, 1, 0, 0;\n"
      "}\n"
      : R32(x, 0), R32(x, 32)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}
// 64 x 64 += A(registers) B(16 x 64, MN-major)
__device__ __forceinline__ void mma64_reg(float (&x)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                          uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
      : R32(x, 0)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
// 64 x 32 += A(64 x 16, K-major) B(16 x 32, MN-major)
__device__ __forceinline__ void mma32(float (&x)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.b32 add, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, add, 1, 1, 0, 1;\n"
      "}\n"
      : R16(x, 0)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf2(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<const uint32_t&>(v);
}

// delta = rowsum(dO * O), L in base 2, dQ scratch = 0. One warp handles four rows.
__global__ void __launch_bounds__(256) prepare(const __nv_bfloat16* o, const __nv_bfloat16* g, const float* l,
                                               float* delta, float* lse2, float* dq) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
  const uint4 a = *reinterpret_cast<const uint4*>(o + at);
  const uint4 b = *reinterpret_cast<const uint4*>(g + at);
  const uint32_t aw[4] = {a.x, a.y, a.z, a.w}, bw[4] = {b.x, b.y, b.z, b.w};
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(__uint_as_float(aw[i] << 16), __uint_as_float(bw[i] << 16), sum);
    sum = fmaf(__uint_as_float(aw[i] & 0xffff0000u), __uint_as_float(bw[i] & 0xffff0000u), sum);
  }
  auto group = cg::tiled_partition<8>(cg::this_thread_block());
  for (int m = 4; m; m >>= 1) sum += group.shfl_xor(sum, m);
  if (group.thread_rank() == 0) {
    const int64_t row = at / D;
    delta[row] = sum;
    lse2[row] = l[row] * LOG2E;
  }
  float4* z = reinterpret_cast<float4*>(dq + at);
  z[0] = float4{0.f, 0.f, 0.f, 0.f};
  z[1] = float4{0.f, 0.f, 0.f, 0.f};
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    attention_backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                       const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_g,
                       const float* __restrict__ lse2, const float* __restrict__ delta, float* __restrict__ dq_acc,
                       __nv_bfloat16* __restrict__ dk_out, __nv_bfloat16* __restrict__ dv_out, int seq) {
  extern __shared__ __align__(1024) unsigned char dynamic[];
  // both CTAs have the same layout, so the same rounding
  Shared& sm = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(dynamic) + 1023) & ~uintptr_t{1023});
  cg::cluster_group cluster = cg::this_cluster();
  const unsigned rank = cluster.block_rank();
  const unsigned peer = rank ^ 1u;

  const int groups = seq / 256;
  const int cluster_id = blockIdx.x / 2;
  const int group = cluster_id % groups;          // group 0 has the most queries and starts first
  const int head_row = (cluster_id / groups) * seq;
  const int key0 = group * 256 + static_cast<int>(rank) * TK;
  const int first = group * 2;                    // first query tile
  const int count = seq / TQ - first;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.kv_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      ptx::mbarrier_init(&sm.full[i], 1);
      ptx::mbarrier_init(&sm.empty[i], 16);       // 8 consumer warps of both CTAs
    }
    ptx::mbarrier_init(&sm.ds_full, 2);
    ptx::mbarrier_init(&sm.ds_free, 16);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  cluster.sync();

  const int wg = threadIdx.x / 128;
  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      arrive_tx(&sm.kv_full, 3 * TK * 128);
      {
        const int32_t at[2] = {0, head_row + key0};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.k[rank], &map_k, at, &sm.kv_full,
                                  static_cast<uint16_t>(3));
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.v, &map_v, at, &sm.kv_full);
      }
      for (int i = 0; i < count; ++i) {
        const int s = i % STAGES;
        const int row = head_row + (first + i) * TQ;
        wait(&sm.empty[s], ((i / STAGES) & 1) ^ 1);
        arrive_tx(&sm.full[s], 2 * TQ * 128 + 2 * TQ * 4);
        const int32_t at[2] = {0, row + static_cast<int>(rank) * 64};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q[s] + rank * 8192, &map_q, at,
                                  &sm.full[s], static_cast<uint16_t>(3));
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.g[s] + rank * 8192, &map_g, at,
                                  &sm.full[s], static_cast<uint16_t>(3));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, sm.lse[s], lse2 + row, TQ * 4, &sm.full[s]);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, sm.delta[s], delta + row, TQ * 4, &sm.full[s]);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int w = wg - 1;
    const int t = threadIdx.x & 127;
    const int warp = t >> 5, lane = t & 31;
    const int c2 = (lane & 3) * 2;
    const int key_r = key0 + 64 * w + 16 * warp + (lane >> 2);

    float dk[32], dv[32], s[64];
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      dk[i] = 0.f;
      dv[i] = 0.f;
    }
    const uint64_t k_desc = make_desc(sm.k[rank] + w * 8192);
    const uint64_t v_desc = make_desc(sm.v + w * 8192);
    const uint64_t kt_desc = make_desc(sm.k[0]) + w * 4;   // 32 columns on: 64 bytes
    const uint64_t ds_desc = make_desc(sm.ds[0]);
    const int tq = (lane & 7) + ((lane >> 4) << 3);
    const uint32_t st_off = tq * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (tq & 7)) << 4);
    const uint32_t st_local = static_cast<uint32_t>(__cvta_generic_to_shared(sm.ds[2 * rank + w])) + st_off;
    const uint32_t st_out = static_cast<uint32_t>(__cvta_generic_to_shared(sm.out[w])) + st_off;
    unsigned char* peer_ds = cluster.map_shared_rank(&sm.ds[2 * rank + w][0], peer);
    uint64_t* peer_full = cluster.map_shared_rank(&sm.ds_full, peer);

    auto scores = [&](int stage) {
      const uint64_t b = make_desc(sm.q[stage]);
      keep(s);
      mma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) mma128(s, k_desc + 2 * kk, b + 2 * kk, kk > 0);
      mma_commit();
    };

    wait(&sm.kv_full, 0);
    wait(&sm.full[0], 0);
    scores(0);

    for (int i = 0; i < count; ++i) {
      const int st = i % STAGES;
      const int q0 = (first + i) * TQ;
      const uint64_t q_desc = make_desc(sm.q[st]), g_desc = make_desc(sm.g[st]);
      float dp[64];
      keep(dp);
      mma_fence();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) mma128(dp, v_desc + 2 * kk, g_desc + 2 * kk, kk > 0);
      mma_commit();
      mma_wait<1>();
      keep(s);
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 l = *reinterpret_cast<const float2*>(&sm.lse[st][8 * j + c2]);
        s[4 * j] = exp2_fast(fmaf(s[4 * j], SCALE * LOG2E, -l.x));
        s[4 * j + 1] = exp2_fast(fmaf(s[4 * j + 1], SCALE * LOG2E, -l.y));
        s[4 * j + 2] = exp2_fast(fmaf(s[4 * j + 2], SCALE * LOG2E, -l.x));
        s[4 * j + 3] = exp2_fast(fmaf(s[4 * j + 3], SCALE * LOG2E, -l.y));
      }
      if (q0 < key0 + TK) {
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          const int q = q0 + 8 * j + c2;
          if (q < key_r) s[4 * j] = 0.f;
          if (q + 1 < key_r) s[4 * j + 1] = 0.f;
          if (q < key_r + 8) s[4 * j + 2] = 0.f;
          if (q + 1 < key_r + 8) s[4 * j + 3] = 0.f;
        }
      }
      mma_wait<0>();
      keep(dp);
      uint32_t p[32], ds[32];
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float2 e = *reinterpret_cast<const float2*>(&sm.delta[st][8 * j + c2]);
        p[2 * j] = bf2(s[4 * j], s[4 * j + 1]);
        p[2 * j + 1] = bf2(s[4 * j + 2], s[4 * j + 3]);
        ds[2 * j] = bf2(s[4 * j] * (dp[4 * j] - e.x), s[4 * j + 1] * (dp[4 * j + 1] - e.y));
        ds[2 * j + 1] = bf2(s[4 * j + 2] * (dp[4 * j + 2] - e.x), s[4 * j + 3] * (dp[4 * j + 3] - e.y));
      }
      keep(dv);
      keep(dk);
      mma_fence();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk)
        mma64_reg(dv, p[4 * kk], p[4 * kk + 1], p[4 * kk + 2], p[4 * kk + 3], g_desc + 128 * kk);
#pragma unroll
      for (int kk = 0; kk < 8; ++kk)
        mma64_reg(dk, ds[4 * kk], ds[4 * kk + 1], ds[4 * kk + 2], ds[4 * kk + 3], q_desc + 128 * kk);
      mma_commit();

      // hand out dS: queries 64 * rank .. stay here, the other 64 go to the peer
      wait(&sm.ds_free, (i & 1) ^ 1);
#pragma unroll
      for (int jj = 0; jj < 8; ++jj) {
        const uint32_t dst = (static_cast<unsigned>(jj / 4) == rank ? st_local : st_out) + (jj % 4) * 16 * 128;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(dst),
                     "r"(ds[4 * jj]), "r"(ds[4 * jj + 1]), "r"(ds[4 * jj + 2]), "r"(ds[4 * jj + 3])
                     : "memory");
      }
      ptx::fence_proxy_async(ptx::space_shared);
      asm volatile("bar.sync %0, 128;" ::"r"(1 + w) : "memory");
      if (t == 0) {
        arrive_tx(&sm.ds_full, 64 * 128);   // what the peer's warpgroup w sends me
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_shared, peer_ds, sm.out[w], 64 * 128, peer_full);
      }
      mma_wait<0>();
      keep(dv);
      keep(dk);
      if (lane == 0) {
        arrive_at(&sm.empty[st], 0);
        arrive_at(&sm.empty[st], 1);
      }
      const bool more = i + 1 < count;
      if (more) {
        wait(&sm.full[(i + 1) % STAGES], ((i + 1) / STAGES) & 1);
        scores((i + 1) % STAGES);
      }
      wait(&sm.ds_full, i & 1);
      float dq[16];
      keep(dq);
      mma_fence();
#pragma unroll
      for (int kb = 0; kb < 4; ++kb)
#pragma unroll
        for (int kk = 0; kk < 4; ++kk)
          mma32(dq, ds_desc + kb * 512 + 2 * kk, kt_desc + kb * 512 + 128 * kk, kb + kk > 0);
      mma_commit();
      mma_wait<0>();
      keep(dq);
      keep(s);
      if (lane == 0) {
        arrive_at(&sm.ds_free, 0);
        arrive_at(&sm.ds_free, 1);
      }
      const int64_t tile = (head_row + q0) / 64 + rank;
      float4* acc = reinterpret_cast<float4*>(dq_acc + tile * (64 * D)) + w * 512 + t;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        atomicAdd(acc + j * 128, make_float4(dq[4 * j], dq[4 * j + 1], dq[4 * j + 2], dq[4 * j + 3]));
    }

    const int64_t row = static_cast<int64_t>(head_row) + key_r;
    __nv_bfloat162* k0 = reinterpret_cast<__nv_bfloat162*>(dk_out + row * D + c2);
    __nv_bfloat162* v0 = reinterpret_cast<__nv_bfloat162*>(dv_out + row * D + c2);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      k0[4 * j] = __floats2bfloat162_rn(dk[4 * j] * SCALE, dk[4 * j + 1] * SCALE);
      k0[4 * j + 8 * D / 2] = __floats2bfloat162_rn(dk[4 * j + 2] * SCALE, dk[4 * j + 3] * SCALE);
      v0[4 * j] = __floats2bfloat162_rn(dv[4 * j], dv[4 * j + 1]);
      v0[4 * j + 8 * D / 2] = __floats2bfloat162_rn(dv[4 * j + 2], dv[4 * j + 3]);
    }
  }
  cluster.sync();   // nobody leaves while the peer may still write here
}

// scratch tile of 64 x 64: float4 [column block of 8][128 accumulator threads]
__global__ void __launch_bounds__(256) finish_dq(const float4* acc, uint4* dq) {
  const int64_t id = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  const int64_t tile = id / 256;                 // 256 threads a tile: 8 column blocks x 32 row pairs
  const int j = threadIdx.x % 8, pair = threadIdx.x / 8;
  const int warp = pair / 8, r = pair % 8;
  const float4* src = acc + tile * 1024 + j * 128 + warp * 32 + r * 4;
  const float4 a = src[0], b = src[1], c = src[2], d = src[3];
  const int64_t row = tile * 64 + warp * 16 + r;
  uint4 lo, hi;
  lo.x = bf2(a.x * SCALE, a.y * SCALE);
  lo.y = bf2(b.x * SCALE, b.y * SCALE);
  lo.z = bf2(c.x * SCALE, c.y * SCALE);
  lo.w = bf2(d.x * SCALE, d.y * SCALE);
  hi.x = bf2(a.z * SCALE, a.w * SCALE);
  hi.y = bf2(b.z * SCALE, b.w * SCALE);
  hi.z = bf2(c.z * SCALE, c.w * SCALE);
  hi.w = bf2(d.z * SCALE, d.w * SCALE);
  dq[row * 8 + j] = lo;
  dq[(row + 8) * 8 + j] = hi;
}

CUtensorMap tensor_map(const tvm::ffi::TensorView& x, int64_t rows, unsigned box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {D, static_cast<cuuint64_t>(rows)};
  const cuuint64_t pitch[1] = {D * sizeof(__nv_bfloat16)};
  const cuuint32_t box[2] = {D, box_rows};
  const cuuint32_t ones[2] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data_ptr(), dims, pitch, box, ones,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed";
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != D) TVM_FFI_THROW(RuntimeError) << "expected D = " << D;
  const int64_t seq = Q.size(2), rows = Q.size(0) * Q.size(1) * seq;
  if (seq % 256 != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256";
  if (rows == 0) return;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static float* scratch = nullptr;
  static int64_t capacity = 0;
  const int64_t need = rows * (D + 2);
  if (need > capacity) {
    if (scratch != nullptr) cudaFree(scratch);
    scratch = nullptr;
    capacity = 0;
    if (cudaMalloc(reinterpret_cast<void**>(&scratch), need * sizeof(float)) != cudaSuccess)
      TVM_FFI_THROW(RuntimeError) << "scratch allocation failed";
    capacity = need;
  }
  float* acc = scratch;
  float* delta = acc + rows * D;
  float* lse2 = delta + rows;

  prepare<<<static_cast<unsigned>(rows * D / 8 / 256), 256, 0, stream>>>(
      static_cast<const __nv_bfloat16*>(O.data_ptr()), static_cast<const __nv_bfloat16*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), delta, lse2, acc);

  const int bytes = static_cast<int>(sizeof(Shared)) + 1024;
  cudaFuncSetAttribute(attention_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  attention_backward<<<static_cast<unsigned>(rows / TK), 384, bytes, stream>>>(
      tensor_map(Q, rows, 64), tensor_map(K, rows, TK), tensor_map(V, rows, TK), tensor_map(dO, rows, 64), lse2, delta,
      acc, static_cast<__nv_bfloat16*>(dK.data_ptr()), static_cast<__nv_bfloat16*>(dV.data_ptr()),
      static_cast<int>(seq));
  finish_dq<<<static_cast<unsigned>(rows / 64), 256, 0, stream>>>(reinterpret_cast<const float4*>(acc),
                                                                  static_cast<uint4*>(dQ.data_ptr()));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
