// Causal MHA forward + LSE, D = 128. Warpgroups split the keys; results are merged in shared memory.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ptx = cuda::ptx;

namespace {

constexpr int D = 128;
constexpr int BM = 128;
constexpr int BN = 64;
constexpr int STAGES = 2;  // of each warpgroup
constexpr int THREADS = 384;
constexpr uint32_t TILE_BYTES = BN * D * 2;

struct Shared {
  alignas(1024) __nv_bfloat16 q[2][BM * 64];
  union {
    struct {
      alignas(1024) __nv_bfloat16 k[2][STAGES][2][BN * 64];
      alignas(1024) __nv_bfloat16 v[2][STAGES][2][BN * 64];
    } ring;
    float o[BM][D + 4];
  };
  float m[BM], l[BM];
  alignas(8) uint64_t q_full;
  alignas(8) uint64_t full[2][STAGES];
  alignas(8) uint64_t empty[2][STAGES];
};

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) continue;
}

__device__ __forceinline__ uint64_t desc(const __nv_bfloat16* p, uint32_t lead) {
  const uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(p));
  return uint64_t((a & 0x3FFFF) >> 4) | (uint64_t(lead >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void load(__nv_bfloat16 (*to)[BN * 64], const CUtensorMap* map, uint64_t* bar, int row,
                                     int head) {
  const int32_t left[3] = {0, row, head};
  const int32_t right[3] = {64, row, head};
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to[0], map, left, bar);
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to[1], map, right, bar);
}

#define F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F32(d, i)                                                                                            \
  F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12), F4(d, i + 16), F4(d, i + 20), F4(d, i + 24), F4(d, i + 28)

__device__ __forceinline__ void mma_64x64(float (&d)[32], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : F32(d, 0)
      : "l"(a), "l"(b), "r"(acc));
}
__device__ __forceinline__ void mma_64x128(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      : F32(d, 0), F32(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct Half {  // 64 queries of one warpgroup's share of the keys
  float s[32];
  float o[64];
  float m[2], l[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = 0.f;
    m[0] = m[1] = -INFINITY;
    l[0] = l[1] = 0.f;
  }
  __device__ __forceinline__ void scores(const __nv_bfloat16 (&q)[2][BM * 64], int half,
                                         const __nv_bfloat16 (&k)[2][BN * 64]) {
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      mma_64x64(s, desc(q[i / 4] + half * 64 * 64 + i % 4 * 16, 16), desc(k[i / 4] + i % 4 * 16, 16), i);
  }
  __device__ __forceinline__ void softmax(uint32_t (&p)[16], float c, int row, int key, bool masked) {
    if (masked) {
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (key + i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8) s[i] = -INFINITY;
    }
    float f[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      const float base = top == -INFINITY ? 0.f : top * c;
      f[h] = ex2(m[h] * c - base);
      m[h] = top;
      float sum = 0.f;
#pragma unroll
      for (int i = 2 * h; i < 32; i += 4) {
        s[i] = ex2(fmaf(s[i], c, -base));
        s[i + 1] = ex2(fmaf(s[i + 1], c, -base));
        sum += s[i] + s[i + 1];
      }
      l[h] = l[h] * f[h] + sum;
    }
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] *= f[i / 2 % 2];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const __nv_bfloat162 v = __floats2bfloat162_rn(s[2 * i], s[2 * i + 1]);
      p[i] = *reinterpret_cast<const uint32_t*>(&v);
    }
  }
  __device__ __forceinline__ void output(const uint32_t (&p)[16], const __nv_bfloat16 (&v)[2][BN * 64]) {
#pragma unroll
    for (int i = 0; i < BN / 16; ++i) mma_64x128(o, p + 4 * i, desc(v[0] + i * 16 * 64, BN * 128));
  }
};

__device__ __forceinline__ void mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__global__ void __launch_bounds__(THREADS, 1)
    mha_split(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
              const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq,
              float scale) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& sm = *reinterpret_cast<Shared*>(raw);
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int tile = gridDim.x - 1 - blockIdx.x;  // long ones first
  const int keys = (tile + 1) * (BM / BN);      // tiles of keys, an even number

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    for (int w = 0; w < 2; ++w)
      for (int s = 0; s < STAGES; ++s) {
        ptx::mbarrier_init(&sm.full[w][s], 1);
        ptx::mbarrier_init(&sm.empty[w][s], 1);
      }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();

  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.q_full, BM * D * 2);
      const int32_t left[3] = {0, tile * BM, head};
      const int32_t right[3] = {64, tile * BM, head};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q[0], &mq, left, &sm.q_full);
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q[1], &mq, right, &sm.q_full);
      for (int j = 0; j < keys; ++j) {
        const int w = j % 2;
        const int s = j / 2 % STAGES;
        wait(&sm.empty[w][s], (j / 2 / STAGES & 1) ^ 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.full[w][s],
                                       2 * TILE_BYTES);
        load(sm.ring.k[w][s], &mk, &sm.full[w][s], j * BN, head);
        load(sm.ring.v[w][s], &mv, &sm.full[w][s], j * BN, head);
      }
    }
    __syncthreads();
    __syncthreads();
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const int local = tid / 32 * 16 + lane / 4;
  const float c = scale * 1.4426950408889634f;
  Half a, b;
  a.clear();
  b.clear();
  uint32_t pa[16], pb[16];
  wait(&sm.q_full, 0);
  for (int i = 0; i < keys / 2; ++i) {
    const int j = 2 * i + wg;
    const int s = i % STAGES;
    const int key = j * BN + lane % 4 * 2;
    wait(&sm.full[wg][s], i / STAGES & 1);
    mma_begin();
    a.scores(sm.q, 0, sm.ring.k[wg][s]);
    b.scores(sm.q, 1, sm.ring.k[wg][s]);
    mma_finish();
    const bool diagonal = i == keys / 2 - 1;
    a.softmax(pa, c, tile * BM + local, key, diagonal);
    b.softmax(pb, c, tile * BM + 64 + local, key, diagonal);
    mma_begin();
    a.output(pa, sm.ring.v[wg][s]);
    b.output(pb, sm.ring.v[wg][s]);
    mma_finish();
    if (tid == 0) ptx::mbarrier_arrive(&sm.empty[wg][s]);
  }

  // Merge: the second warpgroup leaves its part in shared memory, where the ring was.
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Half& x = half ? b : a;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      x.l[h] += __shfl_xor_sync(~0u, x.l[h], 1);
      x.l[h] += __shfl_xor_sync(~0u, x.l[h], 2);
      const int r = half * 64 + local + 8 * h;
      if (wg == 1) {
        if (lane % 4 == 0) {
          sm.m[r] = x.m[h];
          sm.l[r] = x.l[h];
        }
#pragma unroll
        for (int n = 0; n < 16; ++n)
          *reinterpret_cast<float2*>(&sm.o[r][n * 8 + lane % 4 * 2]) =
              make_float2(x.o[4 * n + 2 * h], x.o[4 * n + 2 * h + 1]);
      }
    }
  }
  __syncthreads();
  if (wg == 1) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Half& x = half ? b : a;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = half * 64 + local + 8 * h;
      const float other = sm.m[r];
      const float top = fmaxf(x.m[h], other);
      const float mine = ex2((x.m[h] - top) * c);
      const float theirs = ex2((other - top) * c);
      const float l = x.l[h] * mine + sm.l[r] * theirs;
      const float inverse = 1.f / l;
      const int64_t row = int64_t(head) * seq + tile * BM + r;
      if (lane % 4 == 0) lse[row] = top * scale + logf(l);
#pragma unroll
      for (int n = 0; n < 16; ++n) {
        const float2 y = *reinterpret_cast<const float2*>(&sm.o[r][n * 8 + lane % 4 * 2]);
        *reinterpret_cast<__nv_bfloat162*>(out + row * D + n * 8 + lane % 4 * 2) =
            __floats2bfloat162_rn((x.o[4 * n + 2 * h] * mine + y.x * theirs) * inverse,
                                  (x.o[4 * n + 2 * h + 1] * mine + y.y * theirs) * inverse);
      }
    }
  }
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads, int rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  const cuuint32_t box[3] = {64, cuuint32_t(rows), 1};
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
  if (seq % BM) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap mq = encode(Q, seq, heads, BM), mk = encode(K, seq, heads, BN), mv = encode(V, seq, heads, BN);
  cudaError_t e = cudaFuncSetAttribute(mha_split, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha_split<<<dim3(seq / BM, heads), THREADS, sizeof(Shared), stream>>>(
      mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()), int(seq),
      0.08838834764831845f);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_split: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
