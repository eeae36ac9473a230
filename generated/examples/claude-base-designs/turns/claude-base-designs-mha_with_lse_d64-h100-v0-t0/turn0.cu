// Attention forward with LSE, D = 64, not causal.
// CTA: 192 queries of one (b, h), 3 consumer warpgroups of 64 rows, 1 producer warpgroup. Keys in tiles of 128, 4 stages.
// Cluster of 2 CTAs (neighbouring query tiles): CTA r loads keys [64 r, 64 r + 64) of each tile and multicasts them.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 64;
constexpr int kConsumers = 3;
constexpr int kBM = 64 * kConsumers;
constexpr int kBN = 128;
constexpr int kStages = 4;
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr uint32_t kQWgBytes = 64 * kD * 2;      // 8 KB a warpgroup; the output is staged in the same place
constexpr uint32_t kTileBytes = kBN * kD * 2;    // 16 KB
constexpr uint32_t kHalfBytes = kTileBytes / 2;  // what one CTA of the cluster loads
constexpr int kSmemBytes = kConsumers * kQWgBytes + 2 * kStages * kTileBytes + 1024;
constexpr float kScale = 0.125f;
constexpr float kScaleLog2 = 0.125f * 1.4426950408889634f;

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred P1;\n"
      "WAIT_LOOP:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra WAIT_DONE;\n"
      "bra WAIT_LOOP;\n"
      "WAIT_DONE:\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ uint32_t mapa(uint32_t addr, uint32_t rank) {
  uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(addr), "r"(rank));
  return r;
}
__device__ __forceinline__ void mbar_arrive_cluster(uint32_t remote_bar) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote_bar) : "memory");
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void bar_arrive(int id, int n) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          dst),
      "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, int c0, int c1,
                                                   int c2, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(dst),
      "l"(map), "r"(bar), "r"(c0), "r"(c1), "r"(c2), "h"(mask)
      : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(src), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}

// 128 byte swizzle, 8 rows of 128 bytes an atom. Serves Q and K (K-major) and V (MN-major with 64 columns: one atom wide).
__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(1) << 16) |
         (static_cast<uint64_t>(1024 >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void pin(float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i])::"memory");
}

#define F4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(d, i) F4(d, (i)), F4(d, (i) + 4), F4(d, (i) + 8), F4(d, (i) + 12)

// S[64 x 128] (+)= Q[64 x 16] K[128 x 16]^T
__device__ __forceinline__ void wgmma_qk(float (&d)[64], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
      : "l"(da), "l"(db), "r"(scale_d));
}

// O[64 x 64] += P[64 x 16] (registers) V[16 x 64] (MN-major)
__device__ __forceinline__ void wgmma_pv(float (&d)[32], const uint32_t* a, uint64_t db) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
      "}\n"
      : F16(d, 0), F16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(1));
}

__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x on the FMA units, for x <= 0: x = n + f with |f| <= 1/2, polynomial of degree 4 for 2^f, n added to the exponent.
__device__ __forceinline__ float ex2_poly(float x) {
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23
  x = fmaxf(x, -125.f);
  const float t = __fadd_rn(x, kMagic);
  const float f = __fsub_rn(x, __fsub_rn(t, kMagic));
  float p = fmaf(f, 0.0096181291f, 0.0555041087f);
  p = fmaf(p, f, 0.2402265070f);
  p = fmaf(p, f, 0.6931471806f);
  p = fmaf(p, f, 1.f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(t) << 23));
}

struct Softmax {
  float m[2];
  float l[2];
  float alpha[2];

  // s <- exp(scale (s - max)); the new maxima, the factors alpha for what was summed before, and the thread's sums.
  __device__ __forceinline__ void step(float (&s)[64]) {
    float neg[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float mx = m[r];
#pragma unroll
      for (int g = 0; g < 16; ++g) mx = fmaxf(mx, fmaxf(s[4 * g + 2 * r], s[4 * g + 2 * r + 1]));
      mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
      mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
      alpha[r] = ex2((m[r] - mx) * kScaleLog2);
      m[r] = mx;
      neg[r] = -mx * kScaleLog2;
      l[r] *= alpha[r];
    }
#pragma unroll
    for (int g = 0; g < 16; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float x0 = fmaf(s[4 * g + 2 * r], kScaleLog2, neg[r]);
        const float x1 = fmaf(s[4 * g + 2 * r + 1], kScaleLog2, neg[r]);
        const float y0 = ex2(x0);
        const float y1 = (g & 1) ? ex2_poly(x1) : ex2(x1);
        s[4 * g + 2 * r] = y0;
        s[4 * g + 2 * r + 1] = y1;
        l[r] += y0 + y1;
      }
    }
  }
};

__device__ __forceinline__ void pack_p(uint32_t (&p)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int S) {
  extern __shared__ uint8_t smem_raw[];
  __shared__ alignas(8) uint64_t bars[1 + 4 * kStages];
  const uint32_t smem = (smem_u32(smem_raw) + 1023u) & ~1023u;
  const uint32_t smem_q = smem;
  const uint32_t smem_k = smem + kConsumers * kQWgBytes;
  const uint32_t smem_v = smem_k + kStages * kTileBytes;
  const uint32_t bar_q = smem_u32(bars);
  const uint32_t k_full = bar_q + 8;
  const uint32_t v_full = k_full + 8 * kStages;
  const uint32_t k_empty = v_full + 8 * kStages;
  const uint32_t v_empty = k_empty + 8 * kStages;

  const int wg = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));

  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_q) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_k) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_v) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_o) : "memory");
    mbar_init(bar_q, 1);
    for (int s = 0; s < kStages; ++s) {
      mbar_init(k_full + 8 * s, 1);
      mbar_init(v_full + 8 * s, 1);
      mbar_init(k_empty + 8 * s, 2 * 4 * kConsumers);
      mbar_init(v_empty + 8 * s, 2 * 4 * kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  cluster_sync();

  const int bh = blockIdx.y;
  const int q0 = blockIdx.x * kBM;
  const int n = S / kBN;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == 0) {
      mbar_expect(bar_q, kConsumers * kQWgBytes);
      for (int w = 0; w < kConsumers; ++w) tma_load(smem_q + w * kQWgBytes, &map_q, bar_q, 0, q0 + 64 * w, bh);
      for (int j = 0; j < n; ++j) {
        const int s = j % kStages;
        const uint32_t phase = (j / kStages) & 1;
        const int row = j * kBN + static_cast<int>(rank) * 64;
        mbar_wait(k_empty + 8 * s, phase ^ 1);
        mbar_expect(k_full + 8 * s, kTileBytes);
        tma_load_multicast(smem_k + s * kTileBytes + rank * kHalfBytes, &map_k, k_full + 8 * s, 0, row, bh, 3);
        mbar_wait(v_empty + 8 * s, phase ^ 1);
        mbar_expect(v_full + 8 * s, kTileBytes);
        tma_load_multicast(smem_v + s * kTileBytes + rank * kHalfBytes, &map_v, v_full + 8 * s, 0, row, bh, 3);
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int cw = wg - 1;
    const int next = (cw + 1) % kConsumers;
    const int warp = (threadIdx.x / 32) & 3;
    const uint32_t k_empty_at = mapa(k_empty, lane & 1);
    const uint32_t v_empty_at = mapa(v_empty, lane & 1);
    const uint32_t q_addr = smem_q + cw * kQWgBytes;
    const uint64_t desc_q = make_desc(q_addr);

    float s[64];
    float o[32];
    uint32_t p[32];
    Softmax sm;
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] = 0.f;
    sm.m[0] = sm.m[1] = -INFINITY;
    sm.l[0] = sm.l[1] = 0.f;

    if (cw == kConsumers - 1 && n > 1) bar_arrive(1, 256);  // warpgroup 0 starts the round

    mbar_wait(bar_q, 0);
    mbar_wait(k_full, 0);
    wgmma_fence();
    {
      const uint64_t dk = make_desc(smem_k);
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) wgmma_qk(s, desc_q + 2 * k, dk + 2 * k, k != 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    if (lane < 2) mbar_arrive_cluster(k_empty_at);
    sm.step(s);
    pack_p(p, s);

#pragma unroll 1
    for (int j = 1; j < n; ++j) {
      const int st = j % kStages;
      const int sv = (j - 1) % kStages;
      mbar_wait(k_full + 8 * st, (j / kStages) & 1);
      mbar_wait(v_full + 8 * sv, ((j - 1) / kStages) & 1);
      bar_sync(1 + cw, 256);
      wgmma_fence();
      const uint64_t dk = make_desc(smem_k + st * kTileBytes);
#pragma unroll
      for (int k = 0; k < kD / 16; ++k) wgmma_qk(s, desc_q + 2 * k, dk + 2 * k, k != 0);
      wgmma_commit();
      const uint64_t dv = make_desc(smem_v + sv * kTileBytes);
#pragma unroll
      for (int k = 0; k < kBN / 16; ++k) wgmma_pv(o, p + 4 * k, dv + k * (2048 >> 4));
      wgmma_commit();
      if (cw != kConsumers - 1 || j + 1 < n) bar_arrive(1 + next, 256);

      wgmma_wait<1>();
      pin(s);
      if (lane < 2) mbar_arrive_cluster(k_empty_at + 8 * st);
      sm.step(s);
      wgmma_wait<0>();
      pin(o);
      if (lane < 2) mbar_arrive_cluster(v_empty_at + 8 * sv);
#pragma unroll
      for (int g = 0; g < 8; ++g) {
        o[4 * g] *= sm.alpha[0];
        o[4 * g + 1] *= sm.alpha[0];
        o[4 * g + 2] *= sm.alpha[1];
        o[4 * g + 3] *= sm.alpha[1];
      }
      pack_p(p, s);
    }

    {
      const int sv = (n - 1) % kStages;
      mbar_wait(v_full + 8 * sv, ((n - 1) / kStages) & 1);
      wgmma_fence();
      const uint64_t dv = make_desc(smem_v + sv * kTileBytes);
#pragma unroll
      for (int k = 0; k < kBN / 16; ++k) wgmma_pv(o, p + 4 * k, dv + k * (2048 >> 4));
      wgmma_commit();
      wgmma_wait<0>();
      pin(o);
      if (lane < 2) mbar_arrive_cluster(v_empty_at + 8 * sv);
    }

    float inv[2];
    const int row = q0 + cw * 64 + warp * 16 + lane / 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float l = sm.l[r];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      inv[r] = 1.f / l;
      if (lane % 4 == 0 && row + 8 * r < S)
        lse[static_cast<int64_t>(bh) * S + row + 8 * r] = sm.m[r] * kScale + __logf(l);
    }
    // The warpgroup's own Q is not read any more: stage O there.
    bar_sync(4 + cw, 128);
    const int st_row = warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int chunk = (2 * j + (lane >> 4)) ^ (st_row & 7);
      const float* v = o + 8 * j;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(q_addr + st_row * 128 +
                                                                                            chunk * 16),
                   "r"(pack(v[0] * inv[0], v[1] * inv[0])), "r"(pack(v[2] * inv[1], v[3] * inv[1])),
                   "r"(pack(v[4] * inv[0], v[5] * inv[0])), "r"(pack(v[6] * inv[1], v[7] * inv[1]))
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    bar_sync(4 + cw, 128);
    if (threadIdx.x % 128 == 0 && q0 + cw * 64 < S) {
      tma_store(&map_o, q_addr, 0, q0 + cw * 64, bh);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncwarp();
  }
  cluster_sync();  // neither CTA leaves while the other may write or signal into it
}

void encode(CUtensorMap* map, void* base, int64_t S, int64_t BH) {
  const cuuint64_t dims[3] = {kD, static_cast<cuuint64_t>(S), static_cast<cuuint64_t>(BH)};
  const cuuint64_t strides[2] = {kD * 2, static_cast<cuuint64_t>(S) * kD * 2};
  const cuuint32_t box[3] = {kD, 64, 1};
  const cuuint32_t elem[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 64]";
  const int64_t bh = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (bh == 0 || S == 0) return;
  if (S % kBN != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kBN;
  CUtensorMap map_q, map_k, map_v, map_o;
  encode(&map_q, Q.data_ptr(), S, bh);
  encode(&map_k, K.data_ptr(), S, bh);
  encode(&map_v, V.data_ptr(), S, bh);
  encode(&map_o, O.data_ptr(), S, bh);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  cudaError_t error = cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  const int tiles = static_cast<int>((S + kBM - 1) / kBM);
  const dim3 grid((tiles + 1) / 2 * 2, static_cast<unsigned>(bh));  // whole clusters
  attention<<<grid, kThreads, kSmemBytes, stream>>>(map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                                                    static_cast<int>(S));
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching attention: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
