// Causal MHA forward with LSE, D = 128 (sm_90a). Persistent, warp specialized, TMA + wgmma.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 128;
constexpr int kBlockM = 128;
constexpr int kBlockN = 128;
constexpr int kStages = 2;
constexpr int kWarpgroups = 3;
constexpr int kThreads = kWarpgroups * 128;
constexpr int kPanelQ = kBlockM * 128;  // bytes of 64 columns
constexpr int kPanelK = kBlockN * 128;
constexpr int kQBytes = 2 * kPanelQ;
constexpr int kKBytes = 2 * kPanelK;
constexpr int kOffK = kQBytes;
constexpr int kOffV = kOffK + kStages * kKBytes;
constexpr int kOffBar = kOffV + kStages * kKBytes;
constexpr int kSmem = kOffBar + 128 + 1024;

enum Bar { kQFull = 0, kQEmpty = 1, kKFull = 2, kKEmpty = 4, kVFull = 6, kVEmpty = 8, kBars = 10 };

__device__ __forceinline__ uint32_t to_shared(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

struct Barriers {
  uint32_t base;
  __device__ __forceinline__ uint32_t at(int i) const { return base + 8 * i; }
  __device__ __forceinline__ void init(int i, int n) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(i)), "r"(n) : "memory");
  }
  __device__ __forceinline__ void expect(int i, int bytes) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(i)), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ void arrive(int i) const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(i)) : "memory");
  }
  __device__ __forceinline__ void wait(int i, uint32_t parity) const {
    uint32_t ok;
    do {
      asm volatile(
          "{\n\t.reg .pred p;\n\t"
          "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
          "selp.b32 %0, 1, 0, p;\n\t}"
          : "=r"(ok)
          : "r"(at(i)), "r"(parity)
          : "memory");
    } while (!ok);
  }
};

struct Pipe {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

__device__ __forceinline__ void load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int c, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          dst),
      "l"(map), "r"(c), "r"(row), "r"(head), "r"(bar)
      : "memory");
}

__device__ __forceinline__ uint64_t desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return (uint64_t(addr & 0x3FFFF) >> 4) | (uint64_t(lbo >> 4) << 16) | (uint64_t(sbo >> 4) << 32) | (uint64_t(1) << 62);
}

#define D8(x, i) \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])
#define D64(x) D8(x, 0), D8(x, 8), D8(x, 16), D8(x, 24), D8(x, 32), D8(x, 40), D8(x, 48), D8(x, 56)
#define LIST64                                                        \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"           \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"  \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"  \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"

template <int kScaleD>
__device__ __forceinline__ void gemm_ss(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " LIST64 ", %64, %65, %66, 1, 1, 0, 0;\n"
               : D64(d)
               : "l"(a), "l"(b), "n"(kScaleD));
}

__device__ __forceinline__ void gemm_rs(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " LIST64
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : D64(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory");
}

__device__ __forceinline__ void scores(float (&s)[64], uint32_t q, uint32_t k) {
  mma_fence();
  gemm_ss<0>(s, desc(q, 16, 1024), desc(k, 16, 1024));
#pragma unroll
  for (int i = 1; i < kD / 16; ++i) {
    gemm_ss<1>(s, desc(q + (i / 4) * kPanelQ + (i % 4) * 32, 16, 1024),
               desc(k + (i / 4) * kPanelK + (i % 4) * 32, 16, 1024));
  }
  mma_commit();
}

__device__ __forceinline__ void output(float (&o)[64], const uint32_t (&p)[32], uint32_t v) {
  mma_fence();
#pragma unroll
  for (int i = 0; i < kBlockN / 16; ++i) gemm_rs(o, p + 4 * i, desc(v + i * 2048, kPanelK, 1024));
  mma_commit();
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct State {
  float m[2];
  float l[2];
  float a[2];
};

template <bool kMasked>
__device__ __forceinline__ void softmax(float (&s)[64], State& st, float scale, int row, int key0, int lane) {
  if (kMasked) {
#pragma unroll
    for (int j = 0; j < 64; ++j) {
      const int key = key0 + (j / 4) * 8 + (lane % 4) * 2 + (j & 1);
      if (key > row + ((j >> 1) & 1) * 8) s[j] = -INFINITY;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float m = st.m[h];
#pragma unroll
    for (int j = 2 * h; j < 64; j += 4) m = fmaxf(m, fmaxf(s[j], s[j + 1]));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
    m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
    // A row may see no key of a block that lies beyond its diagonal.
    const float base = m == -INFINITY ? 0.f : m * scale;
    st.a[h] = ex2(st.m[h] * scale - base);
    st.m[h] = m;
    float l = 0.f;
#pragma unroll
    for (int j = 2 * h; j < 64; j += 4) {
      s[j] = ex2(fmaf(s[j], scale, -base));
      s[j + 1] = ex2(fmaf(s[j + 1], scale, -base));
      l += s[j] + s[j + 1];
    }
    st.l[h] = fmaf(st.l[h], st.a[h], l);
  }
}

__device__ __forceinline__ void pack(uint32_t (&p)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i)
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p[i]) : "f"(s[2 * i + 1]), "f"(s[2 * i]));
}

struct Work {
  int head, tile;
};

// Longest first: all heads' last tile, then all heads' last but one, ...
__device__ __forceinline__ Work work_of(int w, int heads, int tiles) { return {w % heads, tiles - 1 - w / heads}; }

__global__ void __launch_bounds__(kThreads, 1)
    causal_attention(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                     const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse,
                     int seq, int heads, float scale) {
  extern __shared__ uint8_t raw_smem[];
  const uint32_t smem = (to_shared(raw_smem) + 1023u) & ~1023u;
  const Barriers bar{smem + kOffBar};
  const int wg = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int tiles = seq / kBlockM;
  const int total = tiles * heads;

  if (threadIdx.x == 0) {
    bar.init(kQFull, 1);
    bar.init(kQEmpty, 2);
    for (int i = 0; i < kStages; ++i) {
      bar.init(kKFull + i, 1);
      bar.init(kVFull + i, 1);
      bar.init(kKEmpty + i, 2);
      bar.init(kVEmpty + i, 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      Pipe pipe;
      uint32_t q_phase = 0;
      for (int w = blockIdx.x; w < total; w += gridDim.x) {
        const Work work = work_of(w, heads, tiles);
        bar.wait(kQEmpty, q_phase ^ 1);
        q_phase ^= 1;
        bar.expect(kQFull, kQBytes);
        load(smem, &mq, bar.at(kQFull), 0, work.tile * kBlockM, work.head);
        load(smem + kPanelQ, &mq, bar.at(kQFull), 64, work.tile * kBlockM, work.head);
        for (int j = work.tile; j >= 0; --j, pipe.next()) {
          const uint32_t k = smem + kOffK + pipe.stage * kKBytes;
          const uint32_t v = smem + kOffV + pipe.stage * kKBytes;
          bar.wait(kKEmpty + pipe.stage, pipe.phase ^ 1);
          bar.expect(kKFull + pipe.stage, kKBytes);
          load(k, &mk, bar.at(kKFull + pipe.stage), 0, j * kBlockN, work.head);
          load(k + kPanelK, &mk, bar.at(kKFull + pipe.stage), 64, j * kBlockN, work.head);
          bar.wait(kVEmpty + pipe.stage, pipe.phase ^ 1);
          bar.expect(kVFull + pipe.stage, kKBytes);
          load(v, &mv, bar.at(kVFull + pipe.stage), 0, j * kBlockN, work.head);
          load(v + kPanelK, &mv, bar.at(kVFull + pipe.stage), 64, j * kBlockN, work.head);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int me = wg - 1;
  const int t = threadIdx.x & 127;
  const int lane = t & 31;
  const int local = me * 64 + (t / 32) * 16 + lane / 4;
  const uint32_t q = smem + me * 64 * 128;
  const float scale_log2 = scale * 1.44269504f;
  Pipe kp, vp;
  uint32_t q_phase = 0;
  for (int w = blockIdx.x; w < total; w += gridDim.x) {
    const Work work = work_of(w, heads, tiles);
    const int row = work.tile * kBlockM + local;
    float o[64] = {0.f};
    float s[64];
    uint32_t p[32];
    State st = {{-INFINITY, -INFINITY}, {0.f, 0.f}, {1.f, 1.f}};

    bar.wait(kQFull, q_phase);
    q_phase ^= 1;
    bar.wait(kKFull + kp.stage, kp.phase);
    scores(s, q, smem + kOffK + kp.stage * kKBytes);
    mma_wait<0>();
    if (t == 0) bar.arrive(kKEmpty + kp.stage);
    kp.next();
    softmax<true>(s, st, scale_log2, row, work.tile * kBlockN, lane);
    pack(p, s);

    for (int j = work.tile - 1; j >= 0; --j) {
      bar.wait(kKFull + kp.stage, kp.phase);
      scores(s, q, smem + kOffK + kp.stage * kKBytes);
      bar.wait(kVFull + vp.stage, vp.phase);
      output(o, p, smem + kOffV + vp.stage * kKBytes);
      mma_wait<1>();
      if (t == 0) bar.arrive(kKEmpty + kp.stage);
      kp.next();
      softmax<false>(s, st, scale_log2, row, j * kBlockN, lane);
      mma_wait<0>();
      if (t == 0) bar.arrive(kVEmpty + vp.stage);
      vp.next();
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] *= st.a[(i >> 1) & 1];
      pack(p, s);
    }
    if (t == 0) bar.arrive(kQEmpty);
    bar.wait(kVFull + vp.stage, vp.phase);
    output(o, p, smem + kOffV + vp.stage * kKBytes);
    mma_wait<0>();
    if (t == 0) bar.arrive(kVEmpty + vp.stage);
    vp.next();

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float l = st.l[h];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      const float inverse = 1.f / l;
      const int r = row + 8 * h;
      const int64_t at = int64_t(work.head) * seq + r;
      if (lane % 4 == 0) lse[at] = st.m[h] * scale + __logf(l);
      __nv_bfloat162* to = reinterpret_cast<__nv_bfloat162*>(out + at * kD + (lane % 4) * 2);
#pragma unroll
      for (int j = 0; j < 16; ++j)
        to[j * 4] = __floats2bfloat162_rn(o[4 * j + 2 * h] * inverse, o[4 * j + 2 * h + 1] * inverse);
    }
  }
}

CUtensorMap make_map(const tvm::ffi::TensorView& x, int64_t heads, int64_t seq, int rows) {
  CUtensorMap map;
  cuuint64_t dims[3] = {kD, (cuuint64_t)seq, (cuuint64_t)heads};
  cuuint64_t strides[2] = {kD * 2, (cuuint64_t)seq * kD * 2};
  cuuint32_t box[3] = {64, (cuuint32_t)rows, 1};
  cuuint32_t elem[3] = {1, 1, 1};
  CUresult status = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data_ptr(), dims, strides, box,
                                           elem, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << int(status);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads * seq == 0) return;
  if (seq % kBlockM) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kBlockM;
  const CUtensorMap mq = make_map(Q, heads, seq, kBlockM);
  const CUtensorMap mk = make_map(K, heads, seq, kBlockN);
  const CUtensorMap mv = make_map(V, heads, seq, kBlockN);
  cudaError_t error = cudaFuncSetAttribute(causal_attention, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "cudaFuncSetAttribute: " << cudaGetErrorString(error);
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id);
  const int64_t total = heads * (seq / kBlockM);
  const int grid = static_cast<int>(total < sms ? total : sms);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  causal_attention<<<grid, kThreads, kSmem, stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                      static_cast<float*>(LSE.data_ptr()), static_cast<int>(seq),
                                                      static_cast<int>(heads), 0.08838834764831845f);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
