// MHA forward with LSE, D = 128, Hopper: TMA + mbarrier pipeline, wgmma, warp specialization, ping-pong.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 128;
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int STAGES = 2;
constexpr int CONSUMERS = 2;
constexpr int THREADS = 128 * (CONSUMERS + 1);
constexpr int Q_BYTES = BM * D * 2;
constexpr int KV_BYTES = BN * D * 2;
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;

struct __align__(1024) Shared {
  __nv_bfloat16 q[BM * D];  // two panels of 64 columns, 128-byte swizzle; later O
  __nv_bfloat16 k[STAGES][BN * D];
  __nv_bfloat16 v[STAGES][BN * D];
  uint64_t q_full;
  uint64_t k_full[STAGES], k_empty[STAGES];
  uint64_t v_full[STAGES], v_empty[STAGES];
};

__device__ __forceinline__ uint32_t addr_of(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(uint64_t& b, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(addr_of(&b)), "r"(count));
}
__device__ __forceinline__ void barrier_arrive(uint64_t& b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" : : "r"(addr_of(&b)) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint64_t& b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" : : "r"(addr_of(&b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t& b, uint32_t parity) {
  asm volatile(
      "{\n"
      "  .reg .pred done;\n"
      "retry:\n"
      "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%0], %1, 0x989680;\n"
      "  @!done bra retry;\n"
      "}\n"
      :
      : "r"(addr_of(&b)), "r"(parity)
      : "memory");
}

__device__ __forceinline__ void tma_3d(void* dst, const CUtensorMap& map, uint64_t& bar, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(addr_of(dst)), "l"(&map), "r"(addr_of(&bar)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_store_3d(const CUtensorMap& map, const void* src, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :
               : "l"(&map), "r"(addr_of(src)), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// K-major operand (Q, K): rows of 128 bytes, 8 rows are 1024 bytes.
__device__ __forceinline__ uint64_t desc_k_major(uint32_t a) {
  return (uint64_t)((a & 0x3ffff) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)(1024 >> 4) << 32) | ((uint64_t)1 << 62);
}
// MN-major operand (V): panels of 64 columns are BN * 128 bytes apart, groups of 8 keys 1024 bytes.
__device__ __forceinline__ uint64_t desc_mn_major(uint32_t a) {
  return (uint64_t)((a & 0x3ffff) >> 4) | ((uint64_t)(BN * 128 >> 4) << 16) | ((uint64_t)(1024 >> 4) << 32) |
         ((uint64_t)1 << 62);
}

__device__ __forceinline__ void warpgroup_arrive() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void warpgroup_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

#define ACC64                                                                                             \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "  \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "  \
  "%62, %63}"
#define R4(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define R16(c, i) R4(c, i), R4(c, i + 4), R4(c, i + 8), R4(c, i + 12)
#define R64(c) R16(c, 0), R16(c, 16), R16(c, 32), R16(c, 48)

__device__ __forceinline__ void mma_ss(float (&c)[64], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ACC64 ", %64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : R64(c)
      : "l"(a), "l"(b), "r"((int)accumulate));
}

__device__ __forceinline__ void mma_rs(float (&c)[64], const uint32_t (&a)[4], uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " ACC64 ", {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      : R64(c)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)accumulate));
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

struct Softmax {
  float m[2];  // running maximum, unscaled
  float l[2];  // running sum of this thread's columns

  // s becomes probabilities; returns the factors for O.
  __device__ __forceinline__ void step(float (&s)[64], float scale_log2, float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int j = 0; j < 16; ++j) top = fmaxf(top, fmaxf(s[4 * j + 2 * h], s[4 * j + 2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
      factor[h] = exp2_approx((m[h] - top) * scale_log2);
      m[h] = top;
      const float offset = top * scale_log2;
      float sum = 0.f;
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        s[4 * j + 2 * h] = exp2_approx(fmaf(s[4 * j + 2 * h], scale_log2, -offset));
        s[4 * j + 2 * h + 1] = exp2_approx(fmaf(s[4 * j + 2 * h + 1], scale_log2, -offset));
        sum += s[4 * j + 2 * h] + s[4 * j + 2 * h + 1];
      }
      l[h] = l[h] * factor[h] + sum;
    }
  }
};

__device__ __forceinline__ void issue_scores(float (&s)[64], uint32_t q, uint32_t k) {
  warpgroup_arrive();
#pragma unroll
  for (int kk = 0; kk < D / 16; ++kk) {
    const uint32_t panel_q = (kk / 4) * (BM * 128) + (kk % 4) * 32;
    const uint32_t panel_k = (kk / 4) * (BN * 128) + (kk % 4) * 32;
    mma_ss(s, desc_k_major(q + panel_q), desc_k_major(k + panel_k), kk != 0);
  }
  warpgroup_commit();
}

__device__ __forceinline__ void issue_output(float (&o)[64], const uint32_t (&p)[BN / 16][4], uint32_t v) {
  warpgroup_arrive();
#pragma unroll
  for (int kk = 0; kk < BN / 16; ++kk) mma_rs(o, p[kk], desc_mn_major(v + kk * 16 * 128), true);
  warpgroup_commit();
}

__device__ __forceinline__ void to_operand(uint32_t (&p)[BN / 16][4], const float (&s)[64]) {
#pragma unroll
  for (int kk = 0; kk < BN / 16; ++kk)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[kk][i] = to_bf16x2(s[8 * kk + 2 * i], s[8 * kk + 2 * i + 1]);
}

__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
              const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int S,
              float scale) {
  extern __shared__ __align__(1024) uint8_t storage[];
  Shared& sm = *reinterpret_cast<Shared*>(storage);
  const int warpgroup = threadIdx.x / 128;
  const int q0 = blockIdx.x * BM;
  const int head = blockIdx.y;
  const int blocks = S / BN;

  if (threadIdx.x == 0) {
    barrier_init(sm.q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(sm.k_full[i], 1);
      barrier_init(sm.v_full[i], 1);
      barrier_init(sm.k_empty[i], CONSUMERS);
      barrier_init(sm.v_empty[i], CONSUMERS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
    if (threadIdx.x == 0) {
      barrier_expect(sm.q_full, Q_BYTES);
      tma_3d(sm.q, map_q, sm.q_full, 0, q0, head);
      tma_3d(sm.q + BM * 64, map_q, sm.q_full, 64, q0, head);
      for (int j = 0; j < blocks; ++j) {
        const int st = j % STAGES;
        const uint32_t free = ((j / STAGES) & 1) ^ 1;
        barrier_wait(sm.k_empty[st], free);
        barrier_expect(sm.k_full[st], KV_BYTES);
        tma_3d(sm.k[st], map_k, sm.k_full[st], 0, j * BN, head);
        tma_3d(sm.k[st] + BN * 64, map_k, sm.k_full[st], 64, j * BN, head);
        barrier_wait(sm.v_empty[st], free);
        barrier_expect(sm.v_full[st], KV_BYTES);
        tma_3d(sm.v[st], map_v, sm.v_full[st], 0, j * BN, head);
        tma_3d(sm.v[st] + BN * 64, map_v, sm.v_full[st], 64, j * BN, head);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
    const int me = warpgroup - 1;
    const int tid = threadIdx.x % 128;
    const int warp = tid / 32;
    const int lane = tid % 32;
    const float scale_log2 = scale * LOG2E;
    const uint32_t q = addr_of(sm.q) + me * 64 * 128;

    float o[64];
    float s[64];
    uint32_t p[BN / 16][4];
    float factor[2];
    Softmax softmax;
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = 0.f;
    softmax.m[0] = softmax.m[1] = -CUDART_INF_F;
    softmax.l[0] = softmax.l[1] = 0.f;

    if (me == 1) named_arrive(1, 256);  // the first one begins
    barrier_wait(sm.q_full, 0);
    barrier_wait(sm.k_full[0], 0);
    named_sync(1 + me, 256);
    issue_scores(s, q, addr_of(sm.k[0]));
    named_arrive(1 + (me ^ 1), 256);
    warpgroup_wait<0>();
    if (tid == 0) barrier_arrive(sm.k_empty[0]);
    softmax.step(s, scale_log2, factor);
    to_operand(p, s);

    for (int j = 1; j < blocks; ++j) {
      const int st = j % STAGES;
      const int before = (j - 1) % STAGES;
      barrier_wait(sm.k_full[st], (j / STAGES) & 1);
      named_sync(1 + me, 256);
      issue_scores(s, q, addr_of(sm.k[st]));
      barrier_wait(sm.v_full[before], ((j - 1) / STAGES) & 1);
      issue_output(o, p, addr_of(sm.v[before]));
      named_arrive(1 + (me ^ 1), 256);
      warpgroup_wait<1>();
      if (tid == 0) barrier_arrive(sm.k_empty[st]);
      softmax.step(s, scale_log2, factor);
      warpgroup_wait<0>();
      if (tid == 0) barrier_arrive(sm.v_empty[before]);
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] *= factor[(i / 2) & 1];
      to_operand(p, s);
    }
    if (me == 0) named_sync(1, 256);
    const int last = (blocks - 1) % STAGES;
    barrier_wait(sm.v_full[last], ((blocks - 1) / STAGES) & 1);
    issue_output(o, p, addr_of(sm.v[last]));
    warpgroup_wait<0>();

    // Normalize, write LSE.
    const int row = warp * 16 + lane / 4;
    float inverse[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float l = softmax.l[h];
      l += __shfl_xor_sync(0xffffffff, l, 1);
      l += __shfl_xor_sync(0xffffffff, l, 2);
      inverse[h] = 1.f / l;
      if (lane % 4 == 0)
        lse[(size_t)head * S + q0 + me * 64 + row + 8 * h] = softmax.m[h] * scale + logf(l);
    }
    // O takes the place of this warpgroup's Q: rows me * 64 ... of both panels.
    const int r = warp * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < 16; j += 2) {
      const int c = j + lane / 16;
      const uint32_t to = q + (c / 8) * (BM * 128) + r * 128 + (((c % 8) ^ (r % 8)) * 16);
      const uint32_t x0 = to_bf16x2(o[4 * j] * inverse[0], o[4 * j + 1] * inverse[0]);
      const uint32_t x1 = to_bf16x2(o[4 * j + 2] * inverse[1], o[4 * j + 3] * inverse[1]);
      const uint32_t x2 = to_bf16x2(o[4 * j + 4] * inverse[0], o[4 * j + 5] * inverse[0]);
      const uint32_t x3 = to_bf16x2(o[4 * j + 6] * inverse[1], o[4 * j + 7] * inverse[1]);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x0), "r"(x1),
                   "r"(x2), "r"(x3)
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    named_sync(3 + me, 128);
    if (tid == 0) {
      tma_store_3d(map_o, sm.q + me * 64 * 64, 0, q0 + me * 64, head);
      tma_store_3d(map_o, sm.q + BM * 64 + me * 64 * 64, 64, q0 + me * 64, head);
      asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
  }
}

void encode(CUtensorMap& map, const tvm::ffi::TensorView& t, uint64_t heads, uint64_t s, uint32_t rows) {
  const cuuint64_t dims[3] = {D, s, heads};
  const cuuint64_t strides[2] = {D * 2, s * D * 2};
  const cuuint32_t box[3] = {64, rows, 1};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: error " << (int)r;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (heads == 0 || S == 0) return;
  if (S % BM != 0) TVM_FFI_THROW(RuntimeError) << "expected S to be a multiple of " << BM << ", found " << S;
  CUtensorMap map_q, map_k, map_v, map_o;
  encode(map_q, Q, heads, S, BM);
  encode(map_k, K, heads, S, BN);
  encode(map_v, V, heads, S, BN);
  encode(map_o, O, heads, S, 64);
  const size_t bytes = sizeof(Shared);
  cudaError_t error = cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  attention<<<dim3(S / BM, heads), THREADS, bytes, stream>>>(map_q, map_k, map_v, map_o,
                                                             static_cast<float*>(LSE.data_ptr()), (int)S,
                                                             1.f / sqrtf((float)D));
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching attention: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
