// mha_bwd_d128: 2-CTA clusters, multicast, dQ pair-reduction through distributed shared memory, bulk fp32 reduce-add.
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
using ptx::scope_cluster;
using ptx::scope_cta;
using ptx::sem_release;
using ptx::space_cluster;
using ptx::space_global;
using ptx::space_shared;

constexpr int kDim = 128;
constexpr int kM = 64;     // queries per iteration
constexpr int kN = 128;    // keys per CTA
constexpr int kPipe = 2;
constexpr float kL2e = 1.4426950408889634f;
constexpr float kSm = 0.08838834764831845f;

struct SharedStorage {
  uint8_t k[2][kN * 128];                 // [64-column panel][key][128 bytes]
  uint8_t v[2][kN * 128];
  uint8_t q[kPipe][2][kM * 128];
  uint8_t g[kPipe][2][kM * 128];
  uint8_t ds[2][kM * 128];                // [key half][query][64 keys]
  float4 recv[2][2][4 * 128];             // [buffer][warpgroup] from the peer, accumulator order
  float4 mine[2][2][4 * 128];             // [buffer][warpgroup] my share, then the sum
  float lse[kPipe][kM];
  float delta[kPipe][kM];
  uint64_t kv_ready;
  uint64_t full[kPipe], empty[kPipe];
  uint64_t recv_full[2][2], send_free[2][2];
};

__device__ __forceinline__ uint32_t addr_of(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void wait_on(uint64_t& bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(&bar, parity)) {
  }
}
__device__ __forceinline__ void expect(uint64_t& bar, uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(sem_release, scope_cta, space_shared, &bar, bytes);
}

// 128-byte swizzle; lbo is used by MN-major operands wider than 64
template <uint32_t kLbo>
__device__ __forceinline__ uint64_t sw128(uint32_t addr) {
  constexpr uint64_t fixed = (uint64_t{1} << 62) | (uint64_t{64} << 32) | (uint64_t{kLbo / 16} << 16);
  return fixed | ((addr >> 4) & 0x3FFF);
}

struct Gmma {
  static __device__ __forceinline__ void open() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
  static __device__ __forceinline__ void close() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
  template <int kPending>
  static __device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
  }
  template <int kCount>
  static __device__ __forceinline__ void tie(float (&x)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
  }
};

#define V8(x, i)                                                                                                 \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), \
      "+f"(x[i + 7])
#define V32(x, i) V8(x, i), V8(x, i + 8), V8(x, i + 16), V8(x, i + 24)
#define N0_31                                                                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define N32_63                                                                                                     \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, " \
  "%54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

template <int kTransB>
__device__ __forceinline__ void mma_64x64(float (&x)[32], uint64_t a, uint64_t b, int scale_d) {
  asm volatile(
      "{\n"
      " .reg .pred p;\n"
      " setp.ne.b32 p, %34, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" N0_31 "}, %32, %33, p, 1, 1, 0, %35;\n"
      "}\n"
      : V32(x, 0)
      : "l"(a), "l"(b), "r"(scale_d), "n"(kTransB));
}
__device__ __forceinline__ void mma_64x128(float (&x)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" N0_31 ", " N32_63
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : V32(x, 0), V32(x, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void stsm(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
__device__ __forceinline__ void stsm_t(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b),
               "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t cvt2(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// 16 threads a row
__global__ void __launch_bounds__(256) dot_rows(const uint4* __restrict__ o, const uint4* __restrict__ g,
                                                const float* __restrict__ l, float* __restrict__ delta,
                                                float* __restrict__ lse2, float4* __restrict__ acc) {
  const int64_t id = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  uint4 a = o[id], b = g[id];
  const __nv_bfloat162* x = reinterpret_cast<const __nv_bfloat162*>(&a);
  const __nv_bfloat162* y = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = __bfloat1622float2(x[i]), w = __bfloat1622float2(y[i]);
    sum = fmaf(u.x, w.x, fmaf(u.y, w.y, sum));
  }
#pragma unroll
  for (int m = 8; m > 0; m >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if ((id & 15) == 0) {
    delta[id >> 4] = sum;
    lse2[id >> 4] = l[id >> 4] * kL2e;
  }
  const float4 zero = make_float4(0.f, 0.f, 0.f, 0.f);
  float4* z = acc + static_cast<int64_t>(blockIdx.x) * 512 + threadIdx.x;
  z[0] = zero;
  z[256] = zero;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    bwd_cluster(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
                const __grid_constant__ CUtensorMap tv, const __grid_constant__ CUtensorMap tg,
                const __grid_constant__ CUtensorMap tdk, const __grid_constant__ CUtensorMap tdv,
                const float* lse2, const float* delta, float* acc, int seq) {
  extern __shared__ uint8_t smem_raw[];
  SharedStorage& sm =
      *reinterpret_cast<SharedStorage*>((reinterpret_cast<uintptr_t>(smem_raw) + 1023) & ~uintptr_t{1023});
  cg::cluster_group cluster = cg::this_cluster();
  const uint32_t rank = cluster.block_rank();
  const uint32_t peer = 1 - rank;
  const int key_row = blockIdx.x * kN;
  const int head_row = key_row / seq * seq;
  const int iters = seq / kM;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.kv_ready, 1);
    for (int i = 0; i < 2; ++i) {
      ptx::mbarrier_init(&sm.full[i], 1);
      ptx::mbarrier_init(&sm.empty[i], 16);
      for (int w = 0; w < 2; ++w) {
        ptx::mbarrier_init(&sm.recv_full[i][w], 1);
        ptx::mbarrier_init(&sm.send_free[i][w], 4);
      }
    }
    ptx::fence_mbarrier_init(sem_release, scope_cluster);
  }
  cluster.sync();

  const int role = threadIdx.x / 128;
  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      expect(sm.kv_ready, 4 * kN * 128);
      for (int p = 0; p < 2; ++p) {
        const int32_t at[2] = {64 * p, key_row};
        ptx::cp_async_bulk_tensor(space_cluster, space_global, sm.k[p], &tk, at, &sm.kv_ready);
        ptx::cp_async_bulk_tensor(space_cluster, space_global, sm.v[p], &tv, at, &sm.kv_ready);
      }
      constexpr uint16_t both = 3;
      for (int i = 0; i < iters; ++i) {
        const int s = i % kPipe;
        wait_on(sm.empty[s], ((i / kPipe) & 1) ^ 1);
        expect(sm.full[s], 4 * kM * 128 + 2 * kM * 4);
        const int row = head_row + i * kM;
        const int32_t at[2] = {static_cast<int32_t>(64 * rank), row};
        ptx::cp_async_bulk_tensor(space_cluster, space_global, sm.q[s][rank], &tq, at, &sm.full[s], both);
        ptx::cp_async_bulk_tensor(space_cluster, space_global, sm.g[s][rank], &tg, at, &sm.full[s], both);
        ptx::cp_async_bulk(space_cluster, space_global, sm.lse[s], lse2 + row, kM * 4, &sm.full[s]);
        ptx::cp_async_bulk(space_cluster, space_global, sm.delta[s], delta + row, kM * 4, &sm.full[s]);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int w = role - 1;
    const int t = threadIdx.x % 128, warp = t / 32, lane = t % 32;
    const int cc = (lane % 4) * 2;
    const uint32_t k0 = addr_of(sm.k) + w * 8192, v0 = addr_of(sm.v) + w * 8192;
    const uint64_t k_panel = sw128<16>(addr_of(sm.k[w]));
    const uint64_t ds_a = sw128<16>(addr_of(sm.ds));
    const int sq = (lane & 7) + ((lane >> 4) << 3);
    const uint32_t ds_st = addr_of(sm.ds[w]) + sq * 128 + (((2 * warp + ((lane >> 3) & 1)) ^ (sq & 7)) << 4);

    float dk[64], dv[64], s[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) dk[i] = dv[i] = 0.f;

    auto issue_s = [&](int st) {
      const uint32_t b = addr_of(sm.q[st]);
      Gmma::tie(s);
      Gmma::open();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk)
        mma_64x64<0>(s, sw128<16>(k0 + (kk / 4) * (kN * 128) + (kk % 4) * 32),
                     sw128<16>(b + (kk / 4) * (kM * 128) + (kk % 4) * 32), kk);
      Gmma::close();
    };
    // sum of both CTAs' shares of iteration i -> global
    auto finish = [&](int i) {
      const int b = i & 1;
      wait_on(sm.recv_full[b][w], (i >> 1) & 1);
#pragma unroll
      for (int jj = 0; jj < 4; ++jj) {
        const float4 x = sm.recv[b][w][jj * 128 + t];
        float4 y = sm.mine[b][w][jj * 128 + t];
        y.x += x.x;
        y.y += x.y;
        y.z += x.z;
        y.w += x.w;
        sm.mine[b][w][jj * 128 + t] = y;
      }
      __syncwarp();
      if (lane == 0)
        ptx::mbarrier_arrive(sem_release, scope_cluster, space_cluster,
                             cluster.map_shared_rank(&sm.send_free[b][w], peer));
      ptx::fence_proxy_async(space_shared);
      asm volatile("bar.sync %0, 128;" ::"r"(2 + w) : "memory");
      if (t == 0) {
        float* dst = acc + static_cast<int64_t>((head_row + i * kM) / kM) * (kM * kDim) + (2 * w + rank) * 2048;
        ptx::cp_reduce_async_bulk(space_global, space_shared, ptx::op_add, dst,
                                  reinterpret_cast<const float*>(sm.mine[b][w]), 8192u);
        ptx::cp_async_bulk_commit_group();
      }
    };

    wait_on(sm.kv_ready, 0);
    wait_on(sm.full[0], 0);
    issue_s(0);

    for (int i = 0; i < iters; ++i) {
      const int st = i % kPipe;
      const uint32_t q = addr_of(sm.q[st]), g = addr_of(sm.g[st]);
      float dp[32];
      Gmma::tie(dp);
      Gmma::open();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk)
        mma_64x64<0>(dp, sw128<16>(v0 + (kk / 4) * (kN * 128) + (kk % 4) * 32),
                     sw128<16>(g + (kk / 4) * (kM * 128) + (kk % 4) * 32), kk);
      Gmma::close();
      if (i > 0) finish(i - 1);
      Gmma::wait<1>();
      Gmma::tie(s);
      uint32_t p[16], ds[16];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 l = *reinterpret_cast<const float2*>(&sm.lse[st][8 * j + cc]);
        s[4 * j] = fast_exp2(fmaf(s[4 * j], kSm * kL2e, -l.x));
        s[4 * j + 1] = fast_exp2(fmaf(s[4 * j + 1], kSm * kL2e, -l.y));
        s[4 * j + 2] = fast_exp2(fmaf(s[4 * j + 2], kSm * kL2e, -l.x));
        s[4 * j + 3] = fast_exp2(fmaf(s[4 * j + 3], kSm * kL2e, -l.y));
        p[2 * j] = cvt2(s[4 * j], s[4 * j + 1]);
        p[2 * j + 1] = cvt2(s[4 * j + 2], s[4 * j + 3]);
      }
      Gmma::wait<0>();
      Gmma::tie(dp);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 e = *reinterpret_cast<const float2*>(&sm.delta[st][8 * j + cc]);
        ds[2 * j] = cvt2(s[4 * j] * (dp[4 * j] - e.x), s[4 * j + 1] * (dp[4 * j + 1] - e.y));
        ds[2 * j + 1] = cvt2(s[4 * j + 2] * (dp[4 * j + 2] - e.x), s[4 * j + 3] * (dp[4 * j + 3] - e.y));
      }
      Gmma::tie(dv);
      Gmma::tie(dk);
      Gmma::open();
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) mma_64x128(dv, p + 4 * kk, sw128<kM * 128>(g + kk * 2048));
#pragma unroll
      for (int kk = 0; kk < 4; ++kk) mma_64x128(dk, ds + 4 * kk, sw128<kM * 128>(q + kk * 2048));
      Gmma::close();

      asm volatile("bar.sync 1, 256;" ::: "memory");    // both warpgroups are done with the previous dS
#pragma unroll
      for (int jj = 0; jj < 4; ++jj)
        stsm_t(ds_st + jj * 16 * 128, ds[4 * jj], ds[4 * jj + 1], ds[4 * jj + 2], ds[4 * jj + 3]);
      ptx::fence_proxy_async(space_shared);
      if (t == 0) {
        expect(sm.recv_full[i & 1][w], 8192);
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<1>{});   // mine[i & 1] has been read
      }
      asm volatile("bar.sync 1, 256;" ::: "memory");
      float dq[32];
      Gmma::tie(dq);
      Gmma::open();
#pragma unroll
      for (int kk = 0; kk < 8; ++kk)
        mma_64x64<1>(dq, ds_a + (kk / 4) * (kM * 128 / 16) + (kk % 4) * 2, k_panel + kk * 128, kk);
      Gmma::close();
      Gmma::wait<1>();
      Gmma::tie(dv);
      Gmma::tie(dk);
      if (lane == 0) {
        ptx::mbarrier_arrive(sem_release, scope_cluster, space_cluster, cluster.map_shared_rank(&sm.empty[st], 0));
        ptx::mbarrier_arrive(sem_release, scope_cluster, space_cluster, cluster.map_shared_rank(&sm.empty[st], 1));
      }
      if (i + 1 < iters) {
        wait_on(sm.full[(i + 1) % kPipe], ((i + 1) / kPipe) & 1);
        issue_s((i + 1) % kPipe);
        Gmma::wait<1>();
      } else {
        Gmma::wait<0>();
      }
      Gmma::tie(dq);
      // columns 32 * rank .. of the panel are mine, the others the peer's
      const int b = i & 1;
      wait_on(sm.send_free[b][w], ((i >> 1) & 1) ^ 1);
      uint64_t* remote_bar = cluster.map_shared_rank(&sm.recv_full[b][w], peer);
      float* remote = reinterpret_cast<float*>(cluster.map_shared_rank(&sm.recv[b][w][t], peer));
#pragma unroll
      for (int jj = 0; jj < 4; ++jj) {
        float keep[4], give[4];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          keep[e] = rank ? dq[16 + 4 * jj + e] : dq[4 * jj + e];
          give[e] = rank ? dq[4 * jj + e] : dq[16 + 4 * jj + e];
        }
        sm.mine[b][w][jj * 128 + t] = make_float4(keep[0], keep[1], keep[2], keep[3]);
        ptx::st_async(remote + jj * 512, give, remote_bar);
      }
    }
    finish(iters - 1);

    // dV over V, dK over K
    asm volatile("bar.sync 1, 256;" ::: "memory");
    const int r = 16 * warp + (lane & 15);
#pragma unroll
    for (int jj = 0; jj < 8; ++jj) {
      const uint32_t off = (jj / 4) * (kN * 128) + r * 128 + (((2 * (jj % 4) + (lane >> 4)) ^ (r & 7)) << 4);
      const float* x = dv + 8 * jj;
      stsm(v0 + off, cvt2(x[0], x[1]), cvt2(x[2], x[3]), cvt2(x[4], x[5]), cvt2(x[6], x[7]));
      const float* y = dk + 8 * jj;
      stsm(k0 + off, cvt2(y[0] * kSm, y[1] * kSm), cvt2(y[2] * kSm, y[3] * kSm), cvt2(y[4] * kSm, y[5] * kSm),
           cvt2(y[6] * kSm, y[7] * kSm));
    }
    ptx::fence_proxy_async(space_shared);
    asm volatile("bar.sync %0, 128;" ::"r"(2 + w) : "memory");
    if (t == 0) {
      for (int p = 0; p < 2; ++p) {
        const int32_t at[2] = {64 * p, key_row + 64 * w};
        ptx::cp_async_bulk_tensor(space_global, space_shared, &tdv, at, sm.v[p] + w * 8192);
        ptx::cp_async_bulk_tensor(space_global, space_shared, &tdk, at, sm.k[p] + w * 8192);
      }
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    }
  }
  cluster.sync();
}

// tile of 64 x 128: float4 [16 column blocks of 8][128 accumulator threads]
__global__ void __launch_bounds__(256) write_dq(const float4* __restrict__ acc, __nv_bfloat16* __restrict__ dq) {
  __shared__ __align__(16) __nv_bfloat16 tile[kM][kDim + 8];
  const float4* src = acc + static_cast<int64_t>(blockIdx.x) * 2048;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int at = n * 256 + threadIdx.x;
    const float4 x = __ldcs(src + at);
    const int j = at / 128, t = at % 128;
    const int row = (t / 32) * 16 + (t % 32) / 4, col = 8 * j + (t % 4) * 2;
    *reinterpret_cast<uint32_t*>(&tile[row][col]) = cvt2(x.x * kSm, x.y * kSm);
    *reinterpret_cast<uint32_t*>(&tile[row + 8][col]) = cvt2(x.z * kSm, x.w * kSm);
  }
  __syncthreads();
  uint4* dst = reinterpret_cast<uint4*>(dq + static_cast<int64_t>(blockIdx.x) * (kM * kDim));
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int at = n * 256 + threadIdx.x;
    dst[at] = *reinterpret_cast<const uint4*>(&tile[at / 16][(at % 16) * 8]);
  }
}

CUtensorMap encode(void* base, int64_t rows, uint32_t box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {kDim, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kDim * 2};
  const cuuint32_t box[2] = {64, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult status = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled returned " << int(status);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != kDim) TVM_FFI_THROW(RuntimeError) << "expected D = 128";
  const int64_t seq = Q.size(2);
  const int64_t rows = Q.size(0) * Q.size(1) * seq;
  if (seq % (2 * kN)) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256";
  if (!rows) return;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static float* scratch = nullptr;
  static int64_t scratch_rows = 0;
  if (rows > scratch_rows) {
    if (scratch) cudaFree(scratch);
    scratch = nullptr;
    scratch_rows = 0;
    if (cudaMalloc(&scratch, rows * (kDim + 2) * sizeof(float)) != cudaSuccess)
      TVM_FFI_THROW(RuntimeError) << "cannot allocate the dQ accumulator";
    scratch_rows = rows;
  }
  float* acc = scratch;
  float* delta = acc + rows * kDim;
  float* lse2 = delta + rows;

  const CUtensorMap tq = encode(Q.data_ptr(), rows, kM), tg = encode(dO.data_ptr(), rows, kM);
  const CUtensorMap tk = encode(K.data_ptr(), rows, kN), tv = encode(V.data_ptr(), rows, kN);
  const CUtensorMap tdk = encode(dK.data_ptr(), rows, 64), tdv = encode(dV.data_ptr(), rows, 64);
  constexpr int bytes = sizeof(SharedStorage) + 1024;
  static_assert(bytes <= 232448, "shared memory");
  cudaFuncSetAttribute(bwd_cluster, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);

  dot_rows<<<static_cast<unsigned>(rows / 16), 256, 0, stream>>>(
      static_cast<const uint4*>(O.data_ptr()), static_cast<const uint4*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), delta, lse2, reinterpret_cast<float4*>(acc));
  bwd_cluster<<<static_cast<unsigned>(rows / kN), 384, bytes, stream>>>(tq, tk, tv, tg, tdk, tdv, lse2, delta, acc,
                                                                         static_cast<int>(seq));
  write_dq<<<static_cast<unsigned>(rows / kM), 256, 0, stream>>>(reinterpret_cast<const float4*>(acc),
                                                                 static_cast<__nv_bfloat16*>(dQ.data_ptr()));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_bwd_d128: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
