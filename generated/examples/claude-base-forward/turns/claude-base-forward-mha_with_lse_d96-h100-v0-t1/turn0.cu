// MHA forward + LSE, D = 96: 64-byte swizzle panels, cluster multicast, three consumer warpgroups.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 96;
constexpr int PANELS = 3;          // of 32 columns, 64 bytes
constexpr int WARPGROUPS = 3;
constexpr int BQ = 64 * WARPGROUPS;
constexpr int BK = 64;
constexpr int STAGES = 5;
constexpr int CLUSTER = 2;
constexpr int THREADS = 128 * (WARPGROUPS + 1);
constexpr int Q_PANEL = BQ * 64;
constexpr int KV_PANEL = BK * 64;
constexpr int KV_BYTES = PANELS * KV_PANEL;

struct Smem {
  alignas(1024) uint8_t q[PANELS][Q_PANEL];
  alignas(1024) uint8_t k[STAGES][PANELS][KV_PANEL];
  alignas(1024) uint8_t v[STAGES][PANELS][KV_PANEL];
  alignas(8) uint64_t q_full;
  alignas(8) uint64_t full[STAGES];
  alignas(8) uint64_t empty[STAGES];
};

__device__ __forceinline__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void bar_init(const uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(const uint64_t* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_wait(const uint64_t* b, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred ready;\n"
      "TRY_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ready, [%0], %1;\n"
      "@!ready bra TRY_%=;\n"
      "}\n"
      :
      : "r"(at(b)), "r"(parity)
      : "memory");
}
__device__ __forceinline__ void bar_arrive_at(const uint64_t* b, uint32_t cta) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(at(b)), "r"(cta));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}

__device__ __forceinline__ void tma(void* to, const CUtensorMap* map, const uint64_t* b, int col, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(at(to)), "l"(map), "r"(col), "r"(row), "r"(head), "r"(at(b))
      : "memory");
}
__device__ __forceinline__ void tma_both(void* to, const CUtensorMap* map, const uint64_t* b, int col, int row,
                                         int head) {
  const uint16_t everyone = (1 << CLUSTER) - 1;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3, %4}], [%5], %6;"
      :
      : "r"(at(to)), "l"(map), "r"(col), "r"(row), "r"(head), "r"(at(b)), "h"(everyone)
      : "memory");
}

// 64-byte swizzle: type 2 in bits 62 and 63; 8 rows are 512 bytes.
__device__ __forceinline__ uint64_t desc64(uint32_t a, uint32_t leading) {
  return uint64_t((a & 0x3FFFF) >> 4) | uint64_t(leading >> 4) << 16 | uint64_t(512 >> 4) << 32 | uint64_t(2) << 62;
}

#define G4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define G16(d, i) G4(d, i), G4(d, i + 4), G4(d, i + 8), G4(d, i + 12)

template <int ScaleD>
__device__ __forceinline__ void mma_s(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,\n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},\n"
      " %32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : G16(d, 0), G16(d, 16)
      : "l"(a), "l"(b), "n"(ScaleD));
}

__device__ __forceinline__ void mma_o(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,\n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,\n"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47},\n"
      " {%48, %49, %50, %51}, %52, p, 1, 1, 1;\n"
      "}\n"
      : G16(d, 0), G16(d, 16), G16(d, 32)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf2(float lo, float hi) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    mha96(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
          const __grid_constant__ CUtensorMap mv, __nv_bfloat16* out, float* lse, int seq) {
  extern __shared__ __align__(1024) uint8_t smem[];
  Smem& sm = *reinterpret_cast<Smem*>(smem);
  uint32_t rank;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int row0 = blockIdx.x * BQ;
  const int n = seq / BK;

  if (threadIdx.x == 0) {
    bar_init(&sm.q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      bar_init(&sm.full[i], 1);
      bar_init(&sm.empty[i], WARPGROUPS * CLUSTER);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");

  if (wg == WARPGROUPS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x % 128 == 0) {
      bar_expect(&sm.q_full, PANELS * Q_PANEL);
      for (int p = 0; p < PANELS; ++p) tma(sm.q[p], &mq, &sm.q_full, p * 32, row0, head);
      for (int j = 0; j < n; ++j) {
        const int s = j % STAGES;
        bar_wait(&sm.empty[s], ((j / STAGES) & 1) ^ 1);
        bar_expect(&sm.full[s], 2 * KV_BYTES);
        // Block 0 brings K, block 1 brings V, each for both.
        if (rank == 0)
          for (int p = 0; p < PANELS; ++p) tma_both(sm.k[s][p], &mk, &sm.full[s], p * 32, j * BK, head);
        else
          for (int p = 0; p < PANELS; ++p) tma_both(sm.v[s][p], &mv, &sm.full[s], p * 32, j * BK, head);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    const int t = threadIdx.x % 128;
    const int lane = t % 32;
    const float scale = 0.10206207261596577f;
    const float c = scale * 1.4426950408889634f;
    const uint32_t q = at(sm.q) + wg * 64 * 64;
    float s[2][32];
    float o[48];
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] = 0.f;

    auto scores = [&](float (&x)[32], int stage) {
      const uint32_t k = at(sm.k[stage]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      mma_s<0>(x, desc64(q, 16), desc64(k, 16));
#pragma unroll
      for (int i = 1; i < D / 16; ++i)
        mma_s<1>(x, desc64(q + (i / 2) * Q_PANEL + (i % 2) * 32, 16),
                 desc64(k + (i / 2) * KV_PANEL + (i % 2) * 32, 16));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    };
    auto step = [&](float (&x)[32], float (&next)[32], int j) {
      // x: scores of tile j, on their way. Those of tile j + 1 go behind them.
      const int stage = j % STAGES;
      if (j + 1 < n) {
        const int ahead = (j + 1) % STAGES;
        bar_wait(&sm.full[ahead], ((j + 1) / STAGES) & 1);
        scores(next, ahead);
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      } else {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      }
      if (j > 0 && t < CLUSTER) bar_arrive_at(&sm.empty[(j - 1) % STAGES], t);
      uint32_t p[16];
      float f[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = m[h];
#pragma unroll
        for (int i = 2 * h; i < 32; i += 4) top = fmaxf(top, fmaxf(x[i], x[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        f[h] = ex2((m[h] - top) * c);
        m[h] = top;
        const float shift = top * c;
        float sum = 0.f;
#pragma unroll
        for (int i = 2 * h; i < 32; i += 4) {
          x[i] = ex2(fmaf(x[i], c, -shift));
          x[i + 1] = ex2(fmaf(x[i + 1], c, -shift));
          sum += x[i] + x[i + 1];
        }
        l[h] = l[h] * f[h] + sum;
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) p[i] = bf2(x[2 * i], x[2 * i + 1]);
#pragma unroll
      for (int i = 0; i < 48; ++i) o[i] *= f[(i >> 1) & 1];
      const uint32_t v = at(sm.v[stage]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < BK / 16; ++i)
        mma_o(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], desc64(v + i * 16 * 64, KV_PANEL));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    };

    bar_wait(&sm.q_full, 0);
    bar_wait(&sm.full[0], 0);
    scores(s[0], 0);
    int j = 0;
    for (; j + 1 < n; j += 2) {
      step(s[0], s[1], j);
      step(s[1], s[0], j + 1);
    }
    if (j < n) step(s[0], s[1], j);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = l[h];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = 1.f / sum;
      const int row = row0 + wg * 64 + (t / 32) * 16 + lane / 4 + 8 * h;
      if (row >= seq) continue;
      const int64_t index = int64_t(head) * seq + row;
      if (lane % 4 == 0) lse[index] = m[h] * scale + logf(sum);
      uint32_t* to = reinterpret_cast<uint32_t*>(out + index * D) + lane % 4;
#pragma unroll
      for (int i = 0; i < 12; ++i) to[4 * i] = bf2(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
    }
  }
  // Neither block may leave while the other still writes into it or arrives at its barriers.
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

CUtensorMap panels(void* p, int64_t seq, int64_t heads, int rows) {
  CUtensorMap m;
  cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  cuuint32_t box[3] = {32, cuuint32_t(rows), 1};
  cuuint32_t steps[3] = {1, 1, 1};
  CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p, dims, strides, box, steps,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: " << int(r);
  return m;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BK != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << BK;
  const CUtensorMap mq = panels(Q.data_ptr(), seq, heads, BQ);
  const CUtensorMap mk = panels(K.data_ptr(), seq, heads, BK);
  const CUtensorMap mv = panels(V.data_ptr(), seq, heads, BK);
  cudaError_t e = cudaFuncSetAttribute(mha96, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Smem)));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const int blocks = int((seq + BQ - 1) / BQ);
  const dim3 grid((blocks + CLUSTER - 1) / CLUSTER * CLUSTER, unsigned(heads));
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha96<<<grid, THREADS, sizeof(Smem), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                 static_cast<float*>(LSE.data_ptr()), int(seq));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha96: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
