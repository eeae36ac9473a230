#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 128;
constexpr int kBlockQ = 64;
constexpr int kBlockKV = 128;
constexpr int kStages = 2;
constexpr int kThreads = 384;

constexpr uint32_t kTileQ = kBlockQ * kD * 2;    // 16 KB
constexpr uint32_t kTileKV = kBlockKV * kD * 2;  // 32 KB
constexpr uint32_t kOffK = 0;
constexpr uint32_t kOffV = kOffK + kTileKV;
constexpr uint32_t kOffQ = kOffV + kTileKV;
constexpr uint32_t kOffDO = kOffQ + kStages * kTileQ;
constexpr uint32_t kOffDS = kOffDO + kStages * kTileQ;        // two buffers [128 kv][64 q]
constexpr uint32_t kOffL = kOffDS + 2 * kBlockKV * kBlockQ * 2;
constexpr uint32_t kOffDelta = kOffL + kStages * kBlockQ * 4;
constexpr uint32_t kOffBar = kOffDelta + kStages * kBlockQ * 4;
constexpr uint32_t kSmem = kOffBar + 128 + 1024;

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "WAIT_LOOP:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra WAIT_DONE;\n"
      "bra WAIT_LOOP;\n"
      "WAIT_DONE:\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void tma_load_2d(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(map), "r"(bar), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(bar)
               : "memory");
}

__device__ __forceinline__ void tma_store_2d(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src),
               "r"(x), "r"(y)
               : "memory");
}

// 128-byte swizzle. lbo matters for MN-major operands wider than 64 elements only.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  uint64_t d = 0;
  d |= static_cast<uint64_t>((addr & 0x3FFFF) >> 4);
  d |= static_cast<uint64_t>(lbo >> 4) << 16;
  d |= static_cast<uint64_t>(sbo >> 4) << 32;
  d |= static_cast<uint64_t>(1) << 62;
  return d;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define ACC8(d, o) \
  "+f"(d[o]), "+f"(d[o + 1]), "+f"(d[o + 2]), "+f"(d[o + 3]), "+f"(d[o + 4]), "+f"(d[o + 5]), "+f"(d[o + 6]), "+f"(d[o + 7])

#define REGS32                                                                                            \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

#define REGS64                                                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "      \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, " \
  "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// D[64 x 64] (+)= A B, both in shared memory.
template <int TransA, int TransB>
__device__ __forceinline__ void wgmma_ss_n64(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " REGS32
      ", %32, %33, p, 1, 1, %35, %36;\n"
      "}\n"
      : ACC8(d, 0), ACC8(d, 8), ACC8(d, 16), ACC8(d, 24)
      : "l"(a), "l"(b), "r"(accumulate), "n"(TransA), "n"(TransB));
}

// D[64 x 128] += A B, A in registers, B MN-major.
__device__ __forceinline__ void wgmma_rs_n128(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGS64
      ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      "}\n"
      : ACC8(d, 0), ACC8(d, 8), ACC8(d, 16), ACC8(d, 24), ACC8(d, 32), ACC8(d, 40), ACC8(d, 48), ACC8(d, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t pack_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

__device__ __forceinline__ void stmatrix_x4(uint32_t addr, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__device__ __forceinline__ void red_add_v2(float* p, float a, float b) {
  asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(a), "f"(b) : "memory");
}

__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// delta = rowsum(O * dO), and dq_acc = 0. One warp a row.
__global__ void __launch_bounds__(256) preprocess(const __nv_bfloat16* o, const __nv_bfloat16* dout, float* delta,
                                                  float* dq_acc, int64_t rows) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  const uint2 a = reinterpret_cast<const uint2*>(o + row * kD)[lane];
  const uint2 b = reinterpret_cast<const uint2*>(dout + row * kD)[lane];
  const float2 a0 = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(a.x));
  const float2 a1 = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(a.y));
  const float2 b0 = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(b.x));
  const float2 b1 = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(b.y));
  float sum = a0.x * b0.x + a0.y * b0.y + a1.x * b1.x + a1.y * b1.y;
#pragma unroll
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) delta[row] = sum;
  reinterpret_cast<float4*>(dq_acc + row * kD)[lane] = make_float4(0.f, 0.f, 0.f, 0.f);
}

__global__ void __launch_bounds__(256) postprocess(const float4* acc, uint2* dq, float scale, int64_t n4) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= n4) return;
  const float4 v = acc[i];
  dq[i] = make_uint2(pack_bf16(v.x * scale, v.y * scale), pack_bf16(v.z * scale, v.w * scale));
}

__global__ void __launch_bounds__(kThreads, 1)
    backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
             const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do,
             const __grid_constant__ CUtensorMap map_dk, const __grid_constant__ CUtensorMap map_dv, const float* lse,
             const float* delta, float* dq_acc, int seq, float scale) {
  extern __shared__ uint8_t raw[];
  const uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
  uint8_t* const smem = raw + (base - smem_u32(raw));
  const uint32_t bar_kv = base + kOffBar;
  const uint32_t bar_full = bar_kv + 8;
  const uint32_t bar_empty = bar_full + 8 * kStages;

  const int warp_group = threadIdx.x / 128;
  const int head_row = blockIdx.y * seq;
  const int kv_row = head_row + blockIdx.x * kBlockKV;
  const int tiles = seq / kBlockQ;

  if (threadIdx.x == 0) {
    mbar_init(bar_kv, 1);
    for (int s = 0; s < kStages; ++s) {
      mbar_init(bar_full + 8 * s, 1);
      mbar_init(bar_empty + 8 * s, 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (warp_group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      mbar_expect_tx(bar_kv, 2 * kTileKV);
      for (int half = 0; half < 2; ++half) {
        for (int r = 0; r < 2; ++r) {
          tma_load_2d(base + kOffK + half * (kTileKV / 2) + r * 8192, &map_k, bar_kv, half * 64, kv_row + r * 64);
          tma_load_2d(base + kOffV + half * (kTileKV / 2) + r * 8192, &map_v, bar_kv, half * 64, kv_row + r * 64);
        }
      }
      for (int i = 0; i < tiles; ++i) {
        const int s = i % kStages;
        const uint32_t phase = (i / kStages) & 1;
        mbar_wait(bar_empty + 8 * s, phase ^ 1);
        const uint32_t full = bar_full + 8 * s;
        mbar_expect_tx(full, 2 * kTileQ + 2 * kBlockQ * 4);
        const int row = head_row + i * kBlockQ;
        for (int half = 0; half < 2; ++half) {
          tma_load_2d(base + kOffQ + s * kTileQ + half * 8192, &map_q, full, half * 64, row);
          tma_load_2d(base + kOffDO + s * kTileQ + half * 8192, &map_do, full, half * 64, row);
        }
        bulk_load(base + kOffL + s * kBlockQ * 4, lse + row, kBlockQ * 4, full);
        bulk_load(base + kOffDelta + s * kBlockQ * 4, delta + row, kBlockQ * 4, full);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int wg = warp_group - 1;
    const int tid = threadIdx.x % 128;
    const int warp = tid / 32;
    const int lane = tid % 32;
    const float scale_log2 = scale * 1.4426950408889634f;

    float dk[64], dv[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) dk[i] = dv[i] = 0.f;

    // Row of the 8x8 matrices that this lane addresses in stmatrix, and its swizzle.
    const int st_row = wg * 64 + warp * 16 + (lane / 8 % 2) * 8 + lane % 8;

    mbar_wait(bar_kv, 0);
    for (int i = 0; i < tiles; ++i) {
      const int s = i % kStages;
      const uint32_t phase = (i / kStages) & 1;
      const uint32_t sq = base + kOffQ + s * kTileQ;
      const uint32_t sdo = base + kOffDO + s * kTileQ;
      mbar_wait(bar_full + 8 * s, phase);

      float st[32], dpt[32];
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        const uint32_t half = k / 4, in = (k % 4) * 32;
        wgmma_ss_n64<0, 0>(st, make_desc(base + kOffK + half * 16384 + wg * 8192 + in, 16, 1024),
                           make_desc(sq + half * 8192 + in, 16, 1024), k != 0);
      }
      wgmma_commit();
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) {
        const uint32_t half = k / 4, in = (k % 4) * 32;
        wgmma_ss_n64<0, 0>(dpt, make_desc(base + kOffV + half * 16384 + wg * 8192 + in, 16, 1024),
                           make_desc(sdo + half * 8192 + in, 16, 1024), k != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();

      const float* sl = reinterpret_cast<const float*>(smem + kOffL + s * kBlockQ * 4);
      const float* sd = reinterpret_cast<const float*>(smem + kOffDelta + s * kBlockQ * 4);
      uint32_t p[4][4];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 l = *reinterpret_cast<const float2*>(sl + j * 8 + (lane % 4) * 2);
        const float l0 = l.x * 1.4426950408889634f, l1 = l.y * 1.4426950408889634f;
        st[4 * j] = exp2_fast(st[4 * j] * scale_log2 - l0);
        st[4 * j + 1] = exp2_fast(st[4 * j + 1] * scale_log2 - l1);
        st[4 * j + 2] = exp2_fast(st[4 * j + 2] * scale_log2 - l0);
        st[4 * j + 3] = exp2_fast(st[4 * j + 3] * scale_log2 - l1);
        p[j / 2][(j % 2) * 2] = pack_bf16(st[4 * j], st[4 * j + 1]);
        p[j / 2][(j % 2) * 2 + 1] = pack_bf16(st[4 * j + 2], st[4 * j + 3]);
      }
      wgmma_wait<0>();

      // dV += P^T dO
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_rs_n128(dv, p[k], make_desc(sdo + k * 2048, 8192, 1024));
      wgmma_commit();

      uint32_t ds[4][4];
      const uint32_t buffer = base + kOffDS + (i & 1) * (kBlockKV * kBlockQ * 2);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 d = *reinterpret_cast<const float2*>(sd + j * 8 + (lane % 4) * 2);
        ds[j / 2][(j % 2) * 2] = pack_bf16(st[4 * j] * (dpt[4 * j] - d.x), st[4 * j + 1] * (dpt[4 * j + 1] - d.y));
        ds[j / 2][(j % 2) * 2 + 1] =
            pack_bf16(st[4 * j + 2] * (dpt[4 * j + 2] - d.x), st[4 * j + 3] * (dpt[4 * j + 3] - d.y));
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const uint32_t chunk = (2 * k + lane / 16) ^ (st_row & 7);
        stmatrix_x4(buffer + st_row * 128 + chunk * 16, ds[k]);
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      named_barrier(1, 256);

      // dK += dS^T Q, and this warpgroup's 64 columns of dQ = dS K.
      float dq[32];
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        wgmma_ss_n64<1, 1>(dq, make_desc(buffer + k * 2048, 8192, 1024),
                           make_desc(base + kOffK + wg * 16384 + k * 2048, 8192, 1024), k != 0);
      }
      wgmma_commit();
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_rs_n128(dk, ds[k], make_desc(sq + k * 2048, 8192, 1024));
      wgmma_commit();
      wgmma_wait<1>();

      float* out = dq_acc + static_cast<int64_t>(head_row + i * kBlockQ + warp * 16 + lane / 4) * kD + wg * 64 + (lane % 4) * 2;
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        red_add_v2(out + j * 8, dq[4 * j], dq[4 * j + 1]);
        red_add_v2(out + 8 * kD + j * 8, dq[4 * j + 2], dq[4 * j + 3]);
      }
      wgmma_wait<0>();
      if (tid == 0) mbar_arrive(bar_empty + 8 * s);
    }

    // Both warpgroups are done with K and V before they are overwritten.
    named_barrier(1, 256);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      uint32_t a[4], b[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        a[c] = pack_bf16(dk[8 * j + 2 * c] * scale, dk[8 * j + 2 * c + 1] * scale);
        b[c] = pack_bf16(dv[8 * j + 2 * c], dv[8 * j + 2 * c + 1]);
      }
      const uint32_t chunk = ((2 * j + lane / 16) % 8) ^ (st_row & 7);
      const uint32_t at = (j / 4) * 16384 + st_row * 128 + chunk * 16;
      stmatrix_x4(base + kOffK + at, a);
      stmatrix_x4(base + kOffV + at, b);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    named_barrier(2 + wg, 128);
    if (tid == 0) {
      for (int half = 0; half < 2; ++half) {
        tma_store_2d(&map_dk, base + kOffK + half * 16384 + wg * 8192, half * 64, kv_row + wg * 64);
        tma_store_2d(&map_dv, base + kOffV + half * 16384 + wg * 8192, half * 64, kv_row + wg * 64);
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
}

CUtensorMap make_map(void* data, int64_t rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {static_cast<cuuint64_t>(kD), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kD * 2};
  const cuuint32_t box[2] = {64, 64};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, strides, box, steps,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);
  return map;
}

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (Q.size(3) != kD || seq % kBlockKV != 0) TVM_FFI_THROW(RuntimeError) << "expected D = 128 and S a multiple of 128";
  const int64_t rows = heads * seq;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));

  static float* scratch = nullptr;
  static int64_t capacity = 0;
  if (capacity < rows) {
    if (scratch) check(cudaFree(scratch), "cudaFree");
    check(cudaMalloc(&scratch, rows * (kD + 1) * sizeof(float)), "cudaMalloc");
    capacity = rows;
  }
  float* const dq_acc = scratch;
  float* const delta = scratch + rows * kD;
  const float scale = 0.08838834764831845f;

  preprocess<<<static_cast<unsigned>((rows + 7) / 8), 256, 0, stream>>>(
      static_cast<const __nv_bfloat16*>(O.data_ptr()), static_cast<const __nv_bfloat16*>(dO.data_ptr()), delta, dq_acc,
      rows);
  check(cudaGetLastError(), "preprocess");

  check(cudaFuncSetAttribute(backward, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem), "cudaFuncSetAttribute");
  const dim3 grid(static_cast<unsigned>(seq / kBlockKV), static_cast<unsigned>(heads));
  backward<<<grid, kThreads, kSmem, stream>>>(
      make_map(Q.data_ptr(), rows), make_map(K.data_ptr(), rows), make_map(V.data_ptr(), rows),
      make_map(dO.data_ptr(), rows), make_map(dK.data_ptr(), rows), make_map(dV.data_ptr(), rows),
      static_cast<const float*>(L.data_ptr()), delta, dq_acc, static_cast<int>(seq), scale);
  check(cudaGetLastError(), "backward");

  const int64_t n4 = rows * kD / 4;
  postprocess<<<static_cast<unsigned>((n4 + 255) / 256), 256, 0, stream>>>(
      reinterpret_cast<const float4*>(dq_acc), static_cast<uint2*>(dQ.data_ptr()), scale, n4);
  check(cudaGetLastError(), "postprocess");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
