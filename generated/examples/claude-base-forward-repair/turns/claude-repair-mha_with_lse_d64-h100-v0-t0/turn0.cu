// MHA forward + LSE, D = 64. 128 queries, 256 keys per step.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ptx = cuda::ptx;

namespace {

constexpr int D = 64;
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int STAGES = 3;
constexpr int THREADS = 384;

struct Shared {
  alignas(1024) __nv_bfloat16 q[BM][D];
  alignas(1024) __nv_bfloat16 k[STAGES][BN][D];
  alignas(1024) __nv_bfloat16 v[STAGES][BN][D];
  alignas(8) uint64_t q_full;
  uint64_t k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES];
};

__device__ __forceinline__ void block_on(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, bar, parity)) {
  }
}

// One lane of the warp, the same one each time.
__device__ __forceinline__ bool elect_one() {
  uint32_t chosen;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(chosen));
  return chosen != 0;
}

__device__ __forceinline__ uint64_t desc(const void* p) {
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a >> 4) & 0x3FFF) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

#define W(i) "+f"(s[i])
#define W8(i) W(i), W(i + 1), W(i + 2), W(i + 3), W(i + 4), W(i + 5), W(i + 6), W(i + 7)
#define W64(i) W8(i), W8(i + 8), W8(i + 16), W8(i + 24), W8(i + 32), W8(i + 40), W8(i + 48), W8(i + 56)

__device__ __forceinline__ void qk(float (&s)[128], uint64_t a, uint64_t b, bool acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
      "%128, %129, p, 1, 1, 0, 0;\n"
      "}\n"
      : W64(0), W64(64)
      : "l"(a), "l"(b), "r"(int(acc)));
}

__device__ __forceinline__ void pv(float (&s)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
      "}\n"
      : W8(0), W8(8), W8(16), W8(24)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(THREADS, 1)
    attention(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
              const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mo, float* __restrict__ lse,
              int seq) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Shared& sm = *reinterpret_cast<Shared*>(bytes);
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
  const int head = blockIdx.y;
  const int row0 = blockIdx.x * BM;
  const int tiles = seq / BN;

  if (warp == 0 && elect_one()) {
    ptx::mbarrier_init(&sm.q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 1);
      ptx::mbarrier_init(&sm.v_full[i], 1);
      ptx::mbarrier_init(&sm.k_empty[i], 2);
      ptx::mbarrier_init(&sm.v_empty[i], 2);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();

  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (warp == 8 && elect_one()) {
      const auto fetch = [&](void* to, const CUtensorMap& map, uint64_t* bar, int row, int bytes_) {
        const int32_t at[3] = {0, row, head};
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes_);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at, bar);
      };
      fetch(sm.q, mq, &sm.q_full, row0, sizeof(sm.q));
      for (int j = 0; j < tiles; ++j) {
        const int s = j % STAGES;
        const uint32_t parity = ~(j / STAGES) & 1;
        block_on(&sm.k_empty[s], parity);
        fetch(sm.k[s], mk, &sm.k_full[s], j * BN, sizeof(sm.k[s]));
        block_on(&sm.v_empty[s], parity);
        fetch(sm.v[s], mv, &sm.v_full[s], j * BN, sizeof(sm.v[s]));
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int wg = warp / 4;
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const float scale = 0.125f;
  const float c = scale * 1.4426950408889634f;
  const __nv_bfloat16* q = &sm.q[wg * 64][0];
  float s[128];
  float o[32];
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] = 0.f;

  block_on(&sm.q_full, 0);
  for (int j = 0; j < tiles; ++j) {
    const int st = j % STAGES;
    const uint32_t parity = (j / STAGES) & 1;
    block_on(&sm.k_full[st], parity);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < D / 16; ++i) qk(s, desc(q + i * 16), desc(&sm.k[st][0][i * 16]), i > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (tid == 0) {
      ptx::mbarrier_arrive(&sm.k_empty[st]);
      if (j > 0) ptx::mbarrier_arrive(&sm.v_empty[(j - 1) % STAGES]);  // the wait above was for its product too
    }
    float f[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 2 * h; i < 128; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      f[h] = ex2((m[h] - top) * c);
      m[h] = top;
      l[h] *= f[h];
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] *= f[(i / 2) & 1];
    // Packed in place: pair i of the scores becomes word i of the operand.
    uint32_t p[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int h = i & 1;
      const float x = ex2(fmaf(s[2 * i], c, -m[h] * c));
      const float y = ex2(fmaf(s[2 * i + 1], c, -m[h] * c));
      l[h] += x + y;
      const __nv_bfloat162 w = __floats2bfloat162_rn(x, y);
      p[i] = *reinterpret_cast<const uint32_t*>(&w);
    }
    block_on(&sm.v_full[st], parity);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < BN / 16; ++i)
      pv(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], desc(&sm.v[st][16 * i][0]));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

  float inverse[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    l[h] += __shfl_xor_sync(~0u, l[h], 1);
    l[h] += __shfl_xor_sync(~0u, l[h], 2);
    inverse[h] = 1.f / l[h];
    const int row = row0 + wg * 64 + (tid / 32) * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) lse[int64_t(head) * seq + row] = m[h] * scale + logf(l[h]);
  }
  const int r = wg * 64 + (tid / 32) * 16 + lane % 16;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    uint32_t w[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const __nv_bfloat162 v =
          __floats2bfloat162_rn(o[4 * i + 2 * e] * inverse[e & 1], o[4 * i + 2 * e + 1] * inverse[e & 1]);
      w[e] = *reinterpret_cast<const uint32_t*>(&v);
    }
    const uint32_t to = uint32_t(__cvta_generic_to_shared(&sm.q[r][((i + lane / 16) ^ (r % 8)) * 8]));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]), "r"(w[1]),
                 "r"(w[2]), "r"(w[3])
                 : "memory");
  }
  ptx::fence_proxy_async(ptx::space_shared);
  asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
  if (tid == 0) {
    const int32_t at[3] = {0, row0 + wg * 64, head};
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &mo, at, q);
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads, int rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  const cuuint32_t box[3] = {D, cuuint32_t(rows), 1};
  const cuuint32_t ones[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << int(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BN) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256, found " << seq;
  const CUtensorMap mq = encode(Q, seq, heads, BM), mk = encode(K, seq, heads, BN), mv = encode(V, seq, heads, BN);
  const CUtensorMap mo = encode(O, seq, heads, 64);
  cudaError_t e = cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  attention<<<dim3(seq / BM, heads), THREADS, sizeof(Shared), stream>>>(mq, mk, mv, mo,
                                                                       static_cast<float*>(LSE.data_ptr()), int(seq));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "attention: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
