// mha_bwd_d96: delta kernel, dK/dV kernel, dQ kernel. 64B swizzle, 64 x 96 tile units of [3 panels][64 rows][64 bytes].
#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
#include <utility>

#pragma nv_diag_suppress static_var_with_dynamic_init

namespace {

using barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

constexpr int kHeadDim = 96;
constexpr int kRows = 64;                        // rows of a tile unit
constexpr int kPanel = kRows * 64;               // bytes of 32 columns
constexpr int kUnit = 3 * kPanel;                // bytes of a 64 x 96 unit
constexpr int kDepth = 4;                        // pipeline stages
constexpr int kThreads = 3 * 128;                // producer warpgroup, two consumer warpgroups
constexpr float kInvSqrtD = 0.10206207261596577f;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kToLog2 = kInvSqrtD * kLog2e;

__device__ __forceinline__ uint64_t descriptor(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  uint64_t d = 0;
  d |= static_cast<uint64_t>((addr >> 4) & 0x3FFF);
  d |= static_cast<uint64_t>((lbo >> 4) & 0x3FFF) << 16;
  d |= static_cast<uint64_t>((sbo >> 4) & 0x3FFF) << 32;
  d |= 2ull << 62;                               // 64-byte swizzle
  return d;
}
// rows are M or N, k along the row: step kk of 16 columns
__device__ __forceinline__ uint64_t k_major(uint32_t unit, int kk) {
  return descriptor(unit + (kk / 2) * kPanel + (kk % 2) * 32, 16, 512);
}
// rows are k: step kk of 16 rows, all 96 columns
__device__ __forceinline__ uint64_t mn_major(uint32_t unit, int kk) {
  return descriptor(unit + kk * 1024, kPanel, 512);
}

__device__ __forceinline__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
template <int kCount>
__device__ __forceinline__ void touch(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(x[i])::"memory");
}

#define A4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define A16(x, i) A4(x, i), A4(x, i + 4), A4(x, i + 8), A4(x, i + 12)
#define LIST32                                                                                                   \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define LIST48 LIST32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"

__device__ __forceinline__ void gemm_ss_64(float (&x)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST32 "}, %32, %33, p, 1, 1, 0, 0;\n\t}"
      : A16(x, 0), A16(x, 16)
      : "l"(a), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void gemm_rs_64(float (&x)[32], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" LIST32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n\t}"
      : A16(x, 0), A16(x, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void gemm_rs_96t(float (&x)[48], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" LIST48
               "}, {%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
               : A16(x, 0), A16(x, 16), A16(x, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t to_bf16x2(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

// 64 x 96 accumulators of a warpgroup -> swizzled unit in shared memory -> TMA store
__device__ __forceinline__ void store_unit(const float (&x)[48], float factor, unsigned char* unit,
                                           const CUtensorMap& map, int row0, int named) {
  const int t = threadIdx.x % 128, lane = t % 32;
  const int row = (t / 32) * 16 + (lane & 15);
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(unit)) + row * 64;
#pragma unroll
  for (int jj = 0; jj < 6; ++jj) {
    const int chunk = (jj % 2) * 2 + (lane >> 4);
    const uint32_t addr = base + (jj / 2) * kPanel + ((chunk ^ ((row >> 1) & 3)) << 4);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                 "r"(to_bf16x2(x[8 * jj] * factor, x[8 * jj + 1] * factor)),
                 "r"(to_bf16x2(x[8 * jj + 2] * factor, x[8 * jj + 3] * factor)),
                 "r"(to_bf16x2(x[8 * jj + 4] * factor, x[8 * jj + 5] * factor)),
                 "r"(to_bf16x2(x[8 * jj + 6] * factor, x[8 * jj + 7] * factor))
                 : "memory");
  }
  cde::fence_proxy_async_shared_cta();
  asm volatile("bar.sync %0, 128;" ::"r"(named) : "memory");
  if (t == 0) {
    cde::cp_async_bulk_tensor_3d_shared_to_global(&map, 0, row0, 0, unit);
    cde::cp_async_bulk_commit_group();
    cde::cp_async_bulk_wait_group_read<0>();
  }
}

// ------------------------------------------------------------------------------------------------ delta, base-2 LSE
__global__ void __launch_bounds__(256) row_stats(const uint2* o, const uint2* g, const float* l, float2* stats,
                                                 int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.f;
  if (lane < 24) {
    uint2 a = o[row * 24 + lane], b = g[row * 24 + lane];
    const float2 a0 = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&a.x));
    const float2 a1 = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&a.y));
    const float2 b0 = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&b.x));
    const float2 b1 = __bfloat1622float2(*reinterpret_cast<__nv_bfloat162*>(&b.y));
    sum = a0.x * b0.x + a0.y * b0.y + a1.x * b1.x + a1.y * b1.y;
  }
#pragma unroll
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) stats[row] = make_float2(l[row] * kLog2e, sum);
}

// ------------------------------------------------------------------------------------------------ dK and dV
struct KvShared {
  unsigned char k[2][kUnit];
  unsigned char v[2][kUnit];
  unsigned char q[kDepth][kUnit];
  unsigned char g[kDepth][kUnit];
  float2 stats[kDepth][kRows];
};

__global__ void __launch_bounds__(kThreads, 1)
    backward_kv(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_g,
                const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv,
                const float2* stats, int seq) {
  extern __shared__ unsigned char storage[];
  KvShared& sm = *reinterpret_cast<KvShared*>((reinterpret_cast<uintptr_t>(storage) + 1023) & ~uintptr_t(1023));
  __shared__ barrier ready, full[kDepth], empty[kDepth];
  if (threadIdx.x == 0) {
    init(&ready, 1);
    for (int i = 0; i < kDepth; ++i) {
      init(&full[i], 1);
      init(&empty[i], 256);
    }
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  const int key_row = blockIdx.x * 128;
  const int head_row = key_row / seq * seq;
  const int steps = seq / kRows;
  const int role = threadIdx.x / 128;

  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      for (int u = 0; u < 2; ++u) {
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.k[u], &map_k, 0, key_row + u * kRows, 0, ready);
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.v[u], &map_v, 0, key_row + u * kRows, 0, ready);
      }
      (void)cuda::device::barrier_arrive_tx(ready, 1, 4 * kUnit);
      for (int i = 0; i < steps; ++i) {
        const int s = i % kDepth;
        if (i >= kDepth) empty[s].wait_parity(((i / kDepth) & 1) ^ 1);
        const int row = head_row + i * kRows;
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.q[s], &map_q, 0, row, 0, full[s]);
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.g[s], &map_g, 0, row, 0, full[s]);
        cde::cp_async_bulk_global_to_shared(sm.stats[s], stats + row, kRows * sizeof(float2), full[s]);
        (void)cuda::device::barrier_arrive_tx(full[s], 1, 2 * kUnit + kRows * sizeof(float2));
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int w = role - 1;
  const int lane = threadIdx.x % 32;
  const int c2 = (lane % 4) * 2;
  const uint32_t k_unit = static_cast<uint32_t>(__cvta_generic_to_shared(sm.k[w]));
  const uint32_t v_unit = static_cast<uint32_t>(__cvta_generic_to_shared(sm.v[w]));
  const uint32_t q_base = static_cast<uint32_t>(__cvta_generic_to_shared(sm.q[0]));
  const uint32_t g_base = static_cast<uint32_t>(__cvta_generic_to_shared(sm.g[0]));

  float dk[48], dv[48], s[32], dp[32];
#pragma unroll
  for (int i = 0; i < 48; ++i) dk[i] = dv[i] = 0.f;

  // S^T and dP^T of one query tile, as two groups
  auto products = [&](int stage) {
    const uint32_t q_unit = q_base + stage * kUnit, g_unit = g_base + stage * kUnit;
    touch(s);
    touch(dp);
    warpgroup_arrive();
#pragma unroll
    for (int kk = 0; kk < 6; ++kk) gemm_ss_64(s, k_major(k_unit, kk), k_major(q_unit, kk), kk);
    warpgroup_commit();
#pragma unroll
    for (int kk = 0; kk < 6; ++kk) gemm_ss_64(dp, k_major(v_unit, kk), k_major(g_unit, kk), kk);
    warpgroup_commit();
  };

  ready.wait_parity(false);
  full[0].wait_parity(false);
  products(0);
  for (int i = 0; i < steps; ++i) {
    const int st = i % kDepth;
    const float2* row_stats_of = sm.stats[st];
    uint32_t p[16], ds[16];
    float delta[16];
    warpgroup_wait<1>();
    touch(s);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 st2 = *reinterpret_cast<const float4*>(row_stats_of + 8 * j + c2);  // lse, delta of two queries
      s[4 * j] = exp2_approx(s[4 * j] * kToLog2 - st2.x);
      s[4 * j + 1] = exp2_approx(s[4 * j + 1] * kToLog2 - st2.z);
      s[4 * j + 2] = exp2_approx(s[4 * j + 2] * kToLog2 - st2.x);
      s[4 * j + 3] = exp2_approx(s[4 * j + 3] * kToLog2 - st2.z);
      delta[2 * j] = st2.y;
      delta[2 * j + 1] = st2.w;
      p[2 * j] = to_bf16x2(s[4 * j], s[4 * j + 1]);
      p[2 * j + 1] = to_bf16x2(s[4 * j + 2], s[4 * j + 3]);
    }
    warpgroup_wait<0>();
    touch(dp);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      ds[2 * j] = to_bf16x2(s[4 * j] * (dp[4 * j] - delta[2 * j]), s[4 * j + 1] * (dp[4 * j + 1] - delta[2 * j + 1]));
      ds[2 * j + 1] =
          to_bf16x2(s[4 * j + 2] * (dp[4 * j + 2] - delta[2 * j]), s[4 * j + 3] * (dp[4 * j + 3] - delta[2 * j + 1]));
    }
    touch(dv);
    touch(dk);
    warpgroup_arrive();
    const uint32_t q_unit = q_base + st * kUnit, g_unit = g_base + st * kUnit;
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) gemm_rs_96t(dv, p + 4 * kk, mn_major(g_unit, kk));
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) gemm_rs_96t(dk, ds + 4 * kk, mn_major(q_unit, kk));
    warpgroup_commit();
    if (i + 1 < steps) {
      full[(i + 1) % kDepth].wait_parity(((i + 1) / kDepth) & 1);
      products((i + 1) % kDepth);
      warpgroup_wait<2>();
    } else {
      warpgroup_wait<0>();
    }
    touch(dv);
    touch(dk);
    (void)empty[st].arrive();
  }
  store_unit(dv, 1.f, sm.v[w], map_dv, key_row + w * kRows, 1 + w);
  store_unit(dk, kInvSqrtD, sm.k[w], map_dk, key_row + w * kRows, 1 + w);
}

// ------------------------------------------------------------------------------------------------ dQ
struct QShared {
  unsigned char q[2][kUnit];
  unsigned char g[2][kUnit];
  unsigned char k[kDepth][kUnit];
  unsigned char v[kDepth][kUnit];
};

__device__ __forceinline__ void load_fragments(uint32_t (&f)[24], const unsigned char* unit) {
  const int t = threadIdx.x % 128, lane = t % 32;
  const int row = (t / 32) * 16 + (lane & 15);
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(unit)) + row * 64;
#pragma unroll
  for (int kk = 0; kk < 6; ++kk) {
    const int chunk = (kk % 2) * 2 + (lane >> 4);
    const uint32_t addr = base + (kk / 2) * kPanel + ((chunk ^ ((row >> 1) & 3)) << 4);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[4 * kk]), "=r"(f[4 * kk + 1]), "=r"(f[4 * kk + 2]), "=r"(f[4 * kk + 3])
                 : "r"(addr)
                 : "memory");
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    backward_q(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
               const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_g,
               const __grid_constant__ CUtensorMap map_dq, const float2* stats, int seq) {
  extern __shared__ unsigned char storage[];
  QShared& sm = *reinterpret_cast<QShared*>((reinterpret_cast<uintptr_t>(storage) + 1023) & ~uintptr_t(1023));
  __shared__ barrier ready, full[kDepth], empty[kDepth];
  if (threadIdx.x == 0) {
    init(&ready, 1);
    for (int i = 0; i < kDepth; ++i) {
      init(&full[i], 1);
      init(&empty[i], 256);
    }
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  const int query_row = blockIdx.x * 128;
  const int head_row = query_row / seq * seq;
  const int steps = seq / kRows;
  const int role = threadIdx.x / 128;

  if (role == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      for (int u = 0; u < 2; ++u) {
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.q[u], &map_q, 0, query_row + u * kRows, 0, ready);
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.g[u], &map_g, 0, query_row + u * kRows, 0, ready);
      }
      (void)cuda::device::barrier_arrive_tx(ready, 1, 4 * kUnit);
      for (int i = 0; i < steps; ++i) {
        const int s = i % kDepth;
        if (i >= kDepth) empty[s].wait_parity(((i / kDepth) & 1) ^ 1);
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.k[s], &map_k, 0, head_row + i * kRows, 0, full[s]);
        cde::cp_async_bulk_tensor_3d_global_to_shared(sm.v[s], &map_v, 0, head_row + i * kRows, 0, full[s]);
        (void)cuda::device::barrier_arrive_tx(full[s], 1, 2 * kUnit);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int w = role - 1;
  const int t = threadIdx.x % 128, lane = t % 32;
  const int my_row = query_row + w * kRows + (t / 32) * 16 + lane / 4;
  const float2 stats_lo = stats[my_row], stats_hi = stats[my_row + 8];
  const uint32_t k_base = static_cast<uint32_t>(__cvta_generic_to_shared(sm.k[0]));
  const uint32_t v_base = static_cast<uint32_t>(__cvta_generic_to_shared(sm.v[0]));

  uint32_t qf[24], gf[24];
  ready.wait_parity(false);
  load_fragments(qf, sm.q[w]);
  load_fragments(gf, sm.g[w]);

  float dq[48], s[32], dp[32];
#pragma unroll
  for (int i = 0; i < 48; ++i) dq[i] = 0.f;

  auto products = [&](int stage) {
    const uint32_t k_unit = k_base + stage * kUnit, v_unit = v_base + stage * kUnit;
    touch(s);
    touch(dp);
    warpgroup_arrive();
#pragma unroll
    for (int kk = 0; kk < 6; ++kk) gemm_rs_64(s, qf + 4 * kk, k_major(k_unit, kk), kk);
    warpgroup_commit();
#pragma unroll
    for (int kk = 0; kk < 6; ++kk) gemm_rs_64(dp, gf + 4 * kk, k_major(v_unit, kk), kk);
    warpgroup_commit();
  };

  full[0].wait_parity(false);
  products(0);
  for (int i = 0; i < steps; ++i) {
    const int st = i % kDepth;
    uint32_t ds[16];
    warpgroup_wait<1>();
    touch(s);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      s[4 * j] = exp2_approx(s[4 * j] * kToLog2 - stats_lo.x);
      s[4 * j + 1] = exp2_approx(s[4 * j + 1] * kToLog2 - stats_lo.x);
      s[4 * j + 2] = exp2_approx(s[4 * j + 2] * kToLog2 - stats_hi.x);
      s[4 * j + 3] = exp2_approx(s[4 * j + 3] * kToLog2 - stats_hi.x);
    }
    warpgroup_wait<0>();
    touch(dp);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      ds[2 * j] = to_bf16x2(s[4 * j] * (dp[4 * j] - stats_lo.y), s[4 * j + 1] * (dp[4 * j + 1] - stats_lo.y));
      ds[2 * j + 1] =
          to_bf16x2(s[4 * j + 2] * (dp[4 * j + 2] - stats_hi.y), s[4 * j + 3] * (dp[4 * j + 3] - stats_hi.y));
    }
    touch(dq);
    warpgroup_arrive();
#pragma unroll
    for (int kk = 0; kk < 4; ++kk) gemm_rs_96t(dq, ds + 4 * kk, mn_major(k_base + st * kUnit, kk));
    warpgroup_commit();
    if (i + 1 < steps) {
      full[(i + 1) % kDepth].wait_parity(((i + 1) / kDepth) & 1);
      products((i + 1) % kDepth);
      warpgroup_wait<2>();
    } else {
      warpgroup_wait<0>();
    }
    touch(dq);
    (void)empty[st].arrive();
  }
  store_unit(dq, kInvSqrtD, sm.q[w], map_dq, query_row + w * kRows, 1 + w);
}

// ------------------------------------------------------------------------------------------------ host
// The matrix [rows, 96] seen as [3, rows, 32]: a box of 3 x 64 x 32 lands as three 64-byte-wide panels.
CUtensorMap panels(const tvm::ffi::TensorView& x, int64_t rows) {
  CUtensorMap map;
  cuuint64_t dims[3] = {32, static_cast<cuuint64_t>(rows), 3};
  cuuint64_t strides[2] = {kHeadDim * 2, 64};
  cuuint32_t box[3] = {32, kRows, 3};
  cuuint32_t step[3] = {1, 1, 1};
  const CUresult result = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data_ptr(), dims, strides, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: error " << static_cast<int>(result);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != kHeadDim) TVM_FFI_THROW(RuntimeError) << "expected a head dimension of 96";
  const int64_t seq = Q.size(2);
  const int64_t rows = Q.size(0) * Q.size(1) * seq;
  if (seq % 128 != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128";
  if (rows == 0) return;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static float2* stats = nullptr;
  static int64_t stats_rows = 0;
  if (rows > stats_rows) {
    if (stats) cudaFree(stats);
    stats = nullptr;
    stats_rows = 0;
    if (cudaMalloc(&stats, rows * sizeof(float2)) != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "out of memory";
    stats_rows = rows;
  }

  const CUtensorMap mq = panels(Q, rows), mk = panels(K, rows), mv = panels(V, rows), mg = panels(dO, rows);
  const CUtensorMap mdq = panels(dQ, rows), mdk = panels(dK, rows), mdv = panels(dV, rows);
  const int kv_bytes = static_cast<int>(sizeof(KvShared)) + 1024;
  const int q_bytes = static_cast<int>(sizeof(QShared)) + 1024;
  cudaFuncSetAttribute(backward_kv, cudaFuncAttributeMaxDynamicSharedMemorySize, kv_bytes);
  cudaFuncSetAttribute(backward_q, cudaFuncAttributeMaxDynamicSharedMemorySize, q_bytes);

  row_stats<<<static_cast<unsigned>((rows + 7) / 8), 256, 0, stream>>>(
      static_cast<const uint2*>(O.data_ptr()), static_cast<const uint2*>(dO.data_ptr()),
      static_cast<const float*>(L.data_ptr()), stats, rows);
  const unsigned blocks = static_cast<unsigned>(rows / 128);
  backward_kv<<<blocks, kThreads, kv_bytes, stream>>>(mq, mk, mv, mg, mdk, mdv, stats, static_cast<int>(seq));
  backward_q<<<blocks, kThreads, q_bytes, stream>>>(mq, mk, mv, mg, mdq, stats, static_cast<int>(seq));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_bwd_d96: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
