// Causal MHA forward + LSE, D = 96. Persistent, three consumer warpgroups, lazy rescaling, TMA stores.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 96;
constexpr int WG = 3;
constexpr int BM = WG * 64;
constexpr int BN = 96;
constexpr int STAGES = 2;
constexpr int THREADS = (WG + 1) * 128;
constexpr int Q_PANEL = BM * 128;
constexpr int K_PANEL = BN * 128;
constexpr int Q_BYTES = 2 * Q_PANEL;
constexpr int K_BYTES = 2 * K_PANEL;
constexpr int OFF_Q = 0;
constexpr int OFF_K = OFF_Q + Q_BYTES;
constexpr int OFF_V = OFF_K + STAGES * K_BYTES;
constexpr int OFF_BAR = OFF_V + STAGES * K_BYTES;
constexpr int SMEM = OFF_BAR + 256 + 1024;
constexpr float THRESHOLD = 8.f;  // in powers of two

__device__ __forceinline__ uint32_t cvta(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

struct Bar {
  uint32_t a;
  __device__ __forceinline__ void init(uint32_t n) const {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(a), "r"(n) : "memory");
  }
  __device__ __forceinline__ void arrive() const {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(a) : "memory");
  }
  __device__ __forceinline__ void expect(uint32_t n) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(a), "r"(n) : "memory");
  }
  __device__ __forceinline__ void wait(uint32_t parity) const {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "B%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra B%=;\n"
        "}\n" ::"r"(a),
        "r"(parity)
        : "memory");
  }
};

struct Bars {
  uint32_t base;
  __device__ Bar q_full() const { return {base}; }
  __device__ Bar q_empty() const { return {base + 8}; }
  __device__ Bar k_full(int s) const { return {base + 16 + 32 * s}; }
  __device__ Bar k_empty(int s) const { return {base + 24 + 32 * s}; }
  __device__ Bar v_full(int s) const { return {base + 32 + 32 * s}; }
  __device__ Bar v_empty(int s) const { return {base + 40 + 32 * s}; }
};

__device__ __forceinline__ void load(uint32_t to, const CUtensorMap* map, Bar b, int col, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          to),
      "l"(map), "r"(col), "r"(row), "r"(head), "r"(b.a)
      : "memory");
}
__device__ __forceinline__ void store(const CUtensorMap* map, uint32_t from, int col, int row, int head) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(col),
               "r"(row), "r"(head), "r"(from)
               : "memory");
}

__device__ __forceinline__ uint64_t desc(uint32_t a, uint32_t leading) {
  return uint64_t((a & 0x3FFFF) >> 4) | (uint64_t(leading >> 4) << 16) | (uint64_t(64) << 32) | (uint64_t(1) << 62);
}

#define A4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define A16(d, i) A4(d, i), A4(d, i + 4), A4(d, i + 8), A4(d, i + 12)
#define A48(d) A16(d, 0), A16(d, 16), A16(d, 32)
#define T48                                                                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                  \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                         \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}"

__device__ __forceinline__ void mma_ss(float (&d)[48], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %50, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " T48 ", %48, %49, p, 1, 1, 0, 0;\n}\n"
      : A48(d)
      : "l"(a), "l"(b), "r"(acc));
}
__device__ __forceinline__ void mma_rs(float (&d)[48], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " T48 ", {%48, %49, %50, %51}, %52, p, 1, 1, 1;\n}\n"
      : A48(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}

struct Online {
  float m[2], l[2];

  // Returns whether O was left as it is.
  __device__ __forceinline__ void update(float (&s)[48], float (&o)[48], float c) {
    float top[2];
    bool small = true;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x = m[h];
#pragma unroll
      for (int i = 2 * h; i < 48; i += 4) x = fmaxf(x, fmaxf(s[i], s[i + 1]));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
      x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
      top[h] = x;
      small = small && (x - m[h]) * c <= THRESHOLD;
    }
    if (!__all_sync(0xffffffffu, small)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float f = top[h] == -INFINITY ? 1.f : ex2((m[h] - top[h]) * c);
        m[h] = top[h];
        l[h] *= f;
#pragma unroll
        for (int i = 2 * h; i < 48; i += 4) {
          o[i] *= f;
          o[i + 1] *= f;
        }
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float shift = m[h] == -INFINITY ? 0.f : m[h] * c;
#pragma unroll
      for (int i = 2 * h; i < 48; i += 4) {
        s[i] = ex2(fmaf(s[i], c, -shift));
        s[i + 1] = ex2(fmaf(s[i + 1], c, -shift));
        l[h] += s[i] + s[i + 1];
      }
    }
  }
};

__device__ __forceinline__ int key_tiles(int tile, int seq) {
  const int end = min((tile + 1) * BM, seq);
  return (end + BN - 1) / BN;
}

__global__ void __launch_bounds__(THREADS, 1)
    mha_causal(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
               const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mo, float* lse, int seq,
               int heads, float scale) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = (cvta(raw) + 1023) & ~1023u;
  const Bars bars{smem + OFF_BAR};
  const int wg = threadIdx.x / 128;
  const int tiles = (seq + BM - 1) / BM;
  const int items = tiles * heads;

  if (threadIdx.x == 0) {
    bars.q_full().init(1);
    bars.q_empty().init(WG);
    for (int s = 0; s < STAGES; ++s) {
      bars.k_full(s).init(1);
      bars.v_full(s).init(1);
      bars.k_empty(s).init(WG);
      bars.v_empty(s).init(WG);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == WG) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == WG * 128) {
      int n = 0;
      int round = 0;
      for (int item = blockIdx.x; item < items; item += gridDim.x, ++round) {
        const int tile = tiles - 1 - item / heads;
        const int head = item % heads;
        bars.q_empty().wait((round & 1) ^ 1);
        bars.q_full().expect(Q_BYTES);
        load(smem + OFF_Q, &mq, bars.q_full(), 0, tile * BM, head);
        load(smem + OFF_Q + Q_PANEL, &mq, bars.q_full(), 64, tile * BM, head);
        for (int j = key_tiles(tile, seq) - 1; j >= 0; --j, ++n) {
          const int s = n % STAGES;
          const uint32_t parity = ((n / STAGES) & 1) ^ 1;
          const uint32_t k = smem + OFF_K + s * K_BYTES;
          const uint32_t v = smem + OFF_V + s * K_BYTES;
          bars.k_empty(s).wait(parity);
          bars.k_full(s).expect(K_BYTES);
          load(k, &mk, bars.k_full(s), 0, j * BN, head);
          load(k + K_PANEL, &mk, bars.k_full(s), 64, j * BN, head);
          bars.v_empty(s).wait(parity);
          bars.v_full(s).expect(K_BYTES);
          load(v, &mv, bars.v_full(s), 0, j * BN, head);
          load(v + K_PANEL, &mv, bars.v_full(s), 64, j * BN, head);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const int warp = t / 32;
  const float c = scale * 1.4426950408889634f;
  const uint32_t q = smem + OFF_Q + wg * 64 * 128;
  int n = 0;
  int round = 0;
  for (int item = blockIdx.x; item < items; item += gridDim.x, ++round) {
    const int tile = tiles - 1 - item / heads;
    const int head = item % heads;
    const int first = tile * BM + wg * 64;
    const int row = first + warp * 16 + lane / 4;
    float o[48];
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] = 0.f;
    Online state = {{-INFINITY, -INFINITY}, {0.f, 0.f}};
    bars.q_full().wait(round & 1);
    for (int j = key_tiles(tile, seq) - 1; j >= 0; --j, ++n) {
      const int s = n % STAGES;
      const uint32_t parity = (n / STAGES) & 1;
      const uint32_t k = smem + OFF_K + s * K_BYTES;
      const uint32_t v = smem + OFF_V + s * K_BYTES;
      const bool some = j * BN <= first + 63;  // else the whole tile lies behind this warpgroup's diagonal
      bars.k_full(s).wait(parity);
      float x[48];
      if (some) {
        fence();
#pragma unroll
        for (int i = 0; i < D / 16; ++i)
          mma_ss(x, desc(q + (i / 4) * Q_PANEL + (i % 4) * 32, 16), desc(k + (i / 4) * K_PANEL + (i % 4) * 32, 16),
                 i != 0);
        commit();
        wait_group<0>();
      }
      if (t == 0) bars.k_empty(s).arrive();
      bars.v_full(s).wait(parity);
      if (some) {
        if (j * BN + BN - 1 > first) {
#pragma unroll
          for (int i = 0; i < 48; ++i) {
            const int key = j * BN + (i >> 2) * 8 + (lane & 3) * 2 + (i & 1);
            if (key > row + ((i >> 1) & 1) * 8) x[i] = -INFINITY;
          }
        }
        state.update(x, o, c);
        uint32_t p[24];
#pragma unroll
        for (int i = 0; i < 24; ++i) p[i] = pack(x[2 * i], x[2 * i + 1]);
        fence();
#pragma unroll
        for (int i = 0; i < BN / 16; ++i) mma_rs(o, p + 4 * i, desc(v + i * 2048, K_PANEL));
        commit();
        wait_group<0>();
      }
      if (t == 0) bars.v_empty(s).arrive();
    }

    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float l = state.l[h];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      inverse[h] = 1.f / l;
      const int r = row + 8 * h;
      if (lane % 4 == 0 && r < seq) lse[int64_t(head) * seq + r] = state.m[h] * scale + logf(l);
    }
    const int r = warp * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < 12; i += 2) {
      const int chunk = i + lane / 16;
      const uint32_t to = q + (chunk / 8) * Q_PANEL + r * 128 + (((chunk % 8) ^ (r % 8)) << 4);
      const float* d = o + 4 * i;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                   "r"(pack(d[0] * inverse[0], d[1] * inverse[0])), "r"(pack(d[2] * inverse[1], d[3] * inverse[1])),
                   "r"(pack(d[4] * inverse[0], d[5] * inverse[0])), "r"(pack(d[6] * inverse[1], d[7] * inverse[1]))
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
    if (t == 0) {
      store(&mo, q, 0, first, head);
      store(&mo, q + Q_PANEL, 64, first, head);  // columns 96 and up are clipped by the map
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      bars.q_empty().arrive();
    }
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

CUtensorMap make_map(void* p, int64_t seq, int64_t heads, int rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, static_cast<cuuint64_t>(seq), static_cast<cuuint64_t>(heads)};
  const cuuint64_t strides[2] = {D * 2, static_cast<cuuint64_t>(seq * D * 2)};
  const cuuint32_t box[3] = {64, static_cast<cuuint32_t>(rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p, dims, strides, box, steps,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  const CUtensorMap mq = make_map(Q.data_ptr(), seq, heads, BM);
  const CUtensorMap mk = make_map(K.data_ptr(), seq, heads, BN);
  const CUtensorMap mv = make_map(V.data_ptr(), seq, heads, BN);
  const CUtensorMap mo = make_map(O.data_ptr(), seq, heads, 64);
  cudaError_t error = cudaFuncSetAttribute(mha_causal, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id);
  const int64_t items = (seq + BM - 1) / BM * heads;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha_causal<<<items < sms ? int(items) : sms, THREADS, SMEM, stream>>>(
      mq, mk, mv, mo, static_cast<float*>(LSE.data_ptr()), int(seq), int(heads), 0.10206207261596577f);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_causal: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
