// Attention forward with LSE, D = 96, not causal.
// Tiles of 128 queries and 128 keys. In shared memory a tile is [3 chunks][rows][32 columns], 64 byte swizzle.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace ptx = cuda::ptx;

constexpr int kD = 96;
constexpr int kBM = 128;
constexpr int kBN = 128;
constexpr int kStages = 3;
constexpr int kThreads = 384;
constexpr uint32_t kTileBytes = 128 * kD * 2;  // 24 KB: Q, K and V tiles alike
constexpr uint32_t kChunkBytes = 128 * 64;     // 8 KB: 32 columns of a tile
constexpr uint32_t kOutBytes = 64 * kD * 2;    // 12 KB: output of a warpgroup, [3][64][32]
constexpr uint32_t kOutChunkBytes = 64 * 64;
constexpr int kSmemBytes = kTileBytes + 2 * kOutBytes + 2 * kStages * kTileBytes + 1024;
constexpr float kScale = 0.10206207261596577f;  // 1 / sqrt(96)
constexpr float kScaleLog2 = kScale * 1.4426950408889634f;
constexpr int kConsumerWarps = 8;

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void wait_parity(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}
__device__ __forceinline__ void arrive(uint64_t* bar) {
  (void)ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar);
}

// libcu++ of CUDA 13.0 has no wrapper of elect.sync.
__device__ __forceinline__ bool elect_sync(uint32_t mask) {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, %1;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected)
      : "r"(mask)
      : "memory");
  return elected != 0;
}

// 64 byte swizzle (layout type 2): an atom is 8 rows of 64 bytes.
// K-major (Q, K): SBO = from 8 rows to the next 8 rows; LBO is not used.
// MN-major (V): LBO = from 32 columns to the next 32 columns, SBO = from 8 keys to the next 8 keys.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16) |
         (static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32) | (static_cast<uint64_t>(2) << 62);
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
__device__ __forceinline__ void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void bar_arrive(int id, int n) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
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

// O[64 x 96] (+)= P[64 x 16] (registers) V[16 x 96] (MN-major)
__device__ __forceinline__ void wgmma_pv(float (&d)[48], const uint32_t* a, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 1;\n"
      "}\n"
      : F16(d, 0), F16(d, 16), F16(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ void qk_tile(float (&s)[64], uint32_t q, uint32_t k) {
  const uint64_t dq = make_desc(q, 16, 512);
  const uint64_t dk = make_desc(k, 16, 512);
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const uint32_t at = ((i >> 1) * kChunkBytes + (i & 1) * 32) >> 4;
    wgmma_qk(s, dq + at, dk + at, i != 0);
  }
}

__device__ __forceinline__ void pv_tile(float (&o)[48], const uint32_t (&p)[32], uint32_t v, int accumulate) {
  const uint64_t dv = make_desc(v, kChunkBytes, 512);
#pragma unroll
  for (int i = 0; i < kBN / 16; ++i) wgmma_pv(o, p + 4 * i, dv + i * (1024 >> 4), accumulate | (i != 0));
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

__device__ __forceinline__ void softmax_step(float (&s)[64], float (&m)[2], float (&l)[2], float (&alpha)[2]) {
  float neg[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float a = m[r], c = s[2 * r];
#pragma unroll
    for (int g = 0; g < 16; ++g) {
      a = fmaxf(a, s[4 * g + 2 * r]);
      c = fmaxf(c, s[4 * g + 2 * r + 1]);
    }
    float mx = fmaxf(a, c);
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
    alpha[r] = ex2((m[r] - mx) * kScaleLog2);
    m[r] = mx;
    neg[r] = -mx * kScaleLog2;
  }
  float sum[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int r = (i >> 1) & 1;
    s[i] = ex2(fmaf(s[i], kScaleLog2, neg[r]));
    sum[r] += s[i];
  }
  l[0] = fmaf(l[0], alpha[0], sum[0]);
  l[1] = fmaf(l[1], alpha[1], sum[1]);
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_d96(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                  const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse,
                  int S, int total) {
  extern __shared__ uint8_t smem_raw[];
  __shared__ alignas(8) uint64_t q_full, q_empty;
  __shared__ alignas(8) uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  uint8_t* smem = smem_raw + ((1024u - (smem_u32(smem_raw) & 1023u)) & 1023u);
  uint8_t* smem_q = smem;
  uint8_t* smem_k = smem_q + kTileBytes;
  uint8_t* smem_v = smem_k + kStages * kTileBytes;
  uint8_t* smem_o = smem_v + kStages * kTileBytes;

  const int wg = threadIdx.x / 128;
  const int warp_id = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;

  if (warp_id == 0 && elect_sync(0xffffffffu)) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_q) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_k) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_v) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_o) : "memory");
    ptx::mbarrier_init(&q_full, 1);
    ptx::mbarrier_init(&q_empty, kConsumerWarps);
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&k_full[s], 1);
      ptx::mbarrier_init(&v_full[s], 1);
      ptx::mbarrier_init(&k_empty[s], kConsumerWarps);
      ptx::mbarrier_init(&v_empty[s], kConsumerWarps);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();

  const int tiles = S / kBM;  // query tiles of a head; key tiles as well
  const int n = S / kBN;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp_id == 0 && elect_sync(0xffffffffu)) {
      uint32_t s = 0, phase = 0, q_phase = 0;
      for (int t = blockIdx.x; t < total; t += gridDim.x) {
        const int bh = t / tiles;
        const int base = bh * S;
        const int q_row = base + (t - bh * tiles) * kBM;
        wait_parity(&q_empty, q_phase ^ 1);
        q_phase ^= 1;
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &q_full, +kTileBytes);
        const int32_t cq[3] = {0, q_row, 0};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_q, &map_q, cq, &q_full);
        for (int j = 0; j < n; ++j) {
          const int32_t c[3] = {0, base + j * kBN, 0};
          wait_parity(&k_empty[s], phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &k_full[s], +kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_k + s * kTileBytes, &map_k, c,
                                    &k_full[s]);
          wait_parity(&v_empty[s], phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &v_full[s], +kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_v + s * kTileBytes, &map_v, c,
                                    &v_full[s]);
          if (++s == kStages) {
            s = 0;
            phase ^= 1;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int cw = wg - 1;
    const int warp = warp_id & 3;
    const int local_row = cw * 64 + warp * 16 + lane / 4;
    const uint32_t q_addr = smem_u32(smem_q) + cw * (64 * 64);  // 64 rows of 64 bytes further in each chunk
    const uint32_t k_addr = smem_u32(smem_k);
    const uint32_t v_addr = smem_u32(smem_v);
    uint8_t* out = smem_o + cw * kOutBytes;
    const uint32_t out_addr = smem_u32(out);

    if (cw == 1) bar_arrive(1, 256);  // the first turn is warpgroup 0's

    uint32_t ks = 0, k_phase = 0, vs = 0, v_phase = 0, q_phase = 0;
    for (int t = blockIdx.x; t < total; t += gridDim.x) {
      const int bh = t / tiles;
      const int q_row = bh * S + (t - bh * tiles) * kBM;

      float s[64];
      float o[48];
      uint32_t p[32];
      float m[2] = {-INFINITY, -INFINITY};
      float l[2] = {0.f, 0.f};
      float alpha[2];

      wait_parity(&q_full, q_phase);
      q_phase ^= 1;
      wait_parity(&k_full[ks], k_phase);
      bar_sync(1 + cw, 256);
      wgmma_fence();
      qk_tile(s, q_addr, k_addr + ks * kTileBytes);
      wgmma_commit();
      bar_arrive(1 + (cw ^ 1), 256);
      wgmma_wait<0>();
      pin(s);
      if (lane == 0) {
        arrive(&k_empty[ks]);
        if (n == 1) arrive(&q_empty);
      }
      if (++ks == kStages) {
        ks = 0;
        k_phase ^= 1;
      }
      softmax_step(s, m, l, alpha);
#pragma unroll
      for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

#pragma unroll 1
      for (int j = 1; j < n; ++j) {
        wait_parity(&k_full[ks], k_phase);
        wait_parity(&v_full[vs], v_phase);
        bar_sync(1 + cw, 256);
        wgmma_fence();
        qk_tile(s, q_addr, k_addr + ks * kTileBytes);
        wgmma_commit();
        pv_tile(o, p, v_addr + vs * kTileBytes, j > 1);
        wgmma_commit();
        bar_arrive(1 + (cw ^ 1), 256);
        wgmma_wait<1>();
        pin(s);
        if (lane == 0) {
          arrive(&k_empty[ks]);
          if (j == n - 1) arrive(&q_empty);  // the next tile's Q may come
        }
        if (++ks == kStages) {
          ks = 0;
          k_phase ^= 1;
        }
        softmax_step(s, m, l, alpha);
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) arrive(&v_empty[vs]);
        if (++vs == kStages) {
          vs = 0;
          v_phase ^= 1;
        }
#pragma unroll
        for (int i = 0; i < 48; ++i) o[i] *= alpha[(i >> 1) & 1];
#pragma unroll
        for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
      }

      wait_parity(&v_full[vs], v_phase);
      wgmma_fence();
      pv_tile(o, p, v_addr + vs * kTileBytes, n > 1);
      wgmma_commit();
      float inv[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float sum = l[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inv[r] = 1.f / sum;
        if (lane % 4 == 0) lse[static_cast<int64_t>(q_row) + local_row + 8 * r] = m[r] * kScale + __logf(sum);
      }
      wgmma_wait<0>();
      pin(o);
      if (lane == 0) arrive(&v_empty[vs]);
      if (++vs == kStages) {
        vs = 0;
        v_phase ^= 1;
      }

      if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
      bar_sync(3 + cw, 128);
      const int st_row = warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
      for (int j = 0; j < 6; ++j) {  // 16 columns each: half a chunk
        const int unit = ((j & 1) * 2 + (lane >> 4)) ^ ((st_row >> 1) & 3);
        const float* v = o + 8 * j;
        const uint32_t addr = out_addr + (j >> 1) * kOutChunkBytes + st_row * 64 + unit * 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                     "r"(pack(v[0] * inv[0], v[1] * inv[0])), "r"(pack(v[2] * inv[1], v[3] * inv[1])),
                     "r"(pack(v[4] * inv[0], v[5] * inv[0])), "r"(pack(v[6] * inv[1], v[7] * inv[1]))
                     : "memory");
      }
      ptx::fence_proxy_async(ptx::space_shared);
      bar_sync(3 + cw, 128);
      if (threadIdx.x % 128 == 0) {
        const int32_t c[3] = {0, q_row + cw * 64, 0};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map_o, c, out);
        ptx::cp_async_bulk_commit_group();
      }
    }
    if (cw == 0) bar_sync(1, 256);  // warpgroup 1's last arrival
    if (threadIdx.x % 128 == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
}

// [rows, 96] seen as (32 columns, rows, 3 chunks): a box fills shared memory chunk by chunk.
void encode(CUtensorMap* map, void* base, int64_t rows, uint32_t box_rows) {
  const cuuint64_t dims[3] = {32, static_cast<cuuint64_t>(rows), 3};
  const cuuint64_t strides[2] = {kD * 2, 64};
  const cuuint32_t box[3] = {32, box_rows, 3};
  const cuuint32_t elem[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 96]";
  const int64_t bh = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (bh == 0 || S == 0) return;
  if (S % 128 != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128";
  CUtensorMap map_q, map_k, map_v, map_o;
  encode(&map_q, Q.data_ptr(), bh * S, kBM);
  encode(&map_k, K.data_ptr(), bh * S, kBN);
  encode(&map_v, V.data_ptr(), bh * S, kBN);
  encode(&map_o, O.data_ptr(), bh * S, 64);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  int sms = 132;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id);
  const int total = static_cast<int>(bh * (S / kBM));
  cudaError_t error = cudaFuncSetAttribute(attention_d96, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  attention_d96<<<sms < total ? sms : total, kThreads, kSmemBytes, stream>>>(
      map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()), static_cast<int>(S), total);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching attention: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
