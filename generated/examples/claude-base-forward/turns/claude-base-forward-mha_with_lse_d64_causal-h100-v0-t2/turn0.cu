// Causal MHA forward + LSE, D = 64. Four computing warpgroups, cooperative TMA, cuda::barrier.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ptx = cuda::ptx;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;

namespace {

constexpr int D = 64;
constexpr int WGS = 4;
constexpr int BM = 64 * WGS;
constexpr int BN = 64;
constexpr int STAGES = 4;
constexpr int AHEAD = 2;
constexpr int THREADS = 128 * WGS;
constexpr int KV_BYTES = BN * D * 2;

struct Shared {
  alignas(1024) __nv_bfloat16 q[BM * D];
  alignas(1024) __nv_bfloat16 kv[STAGES][2][BN * D];
  block_barrier q_full;
  block_barrier full[STAGES];
  block_barrier empty[STAGES];
};

__device__ __forceinline__ uint64_t desc(const __nv_bfloat16* p) {
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

#define A8(x, i) \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])
#define A32(x) A8(x, 0), A8(x, 8), A8(x, 16), A8(x, 24)
#define N32                                                                         \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "         \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"

template <int ScaleD>
__device__ __forceinline__ void mma_ss(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " N32 ", %32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : A32(d)
      : "l"(a), "l"(b), "n"(ScaleD));
}
__device__ __forceinline__ void mma_rs(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " N32 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
      "}\n"
      : A32(d)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void load(__nv_bfloat16* to, const CUtensorMap& map, block_barrier& bar, int row, int head) {
  const int32_t at[3] = {0, row, head};
  ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, &map, at,
                            cuda::device::barrier_native_handle(bar));
}

__global__ void __launch_bounds__(THREADS, 1)
    mha(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
        const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& sm = *reinterpret_cast<Shared*>(raw);
  const int wg = threadIdx.x / 128;
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const int head = blockIdx.y;
  const int row0 = (gridDim.x - 1 - blockIdx.x) * BM;
  const int tiles = min(row0 + BM, seq) / BN;
  const bool leader = threadIdx.x == 0;

  if (leader) {
    init(&sm.q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      init(&sm.full[i], 1);
      init(&sm.empty[i], WGS);
    }
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();

  const auto refill = [&](int j) {
    const int s = j % STAGES;
    sm.empty[s].wait_parity((j / STAGES & 1) ^ 1);
    load(sm.kv[s][0], mk, sm.full[s], j * BN, head);
    load(sm.kv[s][1], mv, sm.full[s], j * BN, head);
    (void)cuda::device::barrier_arrive_tx(sm.full[s], 1, 2 * KV_BYTES);
  };
  if (leader) {
    load(sm.q, mq, sm.q_full, row0, head);
    (void)cuda::device::barrier_arrive_tx(sm.q_full, 1, BM * D * 2);
    for (int j = 0; j < AHEAD && j < tiles; ++j) refill(j);
  }

  const float scale = 0.125f;
  const float c = scale * 1.4426950408889634f;
  const int first = row0 + wg * 64;
  const int row = first + tid / 32 * 16 + lane / 4;
  const __nv_bfloat16* q = sm.q + wg * 64 * D;
  float s[32], o[32] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {};
  sm.q_full.wait_parity(false);
  for (int j = 0; j < tiles; ++j) {
    const int st = j % STAGES;
    if (leader && j + AHEAD < tiles) refill(j + AHEAD);
    sm.full[st].wait_parity(j / STAGES & 1);
    if (j * BN <= first) {
      const __nv_bfloat16* k = sm.kv[st][0];
      const __nv_bfloat16* v = sm.kv[st][1];
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
      mma_ss<0>(s, desc(q), desc(k));
      mma_ss<1>(s, desc(q + 16), desc(k + 16));
      mma_ss<1>(s, desc(q + 32), desc(k + 32));
      mma_ss<1>(s, desc(q + 48), desc(k + 48));
      asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (j * BN == first) {
#pragma unroll
        for (int i = 0; i < 32; ++i)
          if (j * BN + i / 4 * 8 + lane % 4 * 2 + i % 2 > row + i / 2 % 2 * 8) s[i] = -INFINITY;
      }
      float f[2];
      uint32_t p[4][4];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = m[h];
#pragma unroll
        for (int i = 2 * h; i < 32; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        f[h] = ex2((m[h] - top) * c);
        m[h] = top;
        l[h] *= f[h];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float x = ex2(fmaf(s[4 * i + 2 * h], c, -top * c));
          const float y = ex2(fmaf(s[4 * i + 2 * h + 1], c, -top * c));
          l[h] += x + y;
          p[i / 2][i % 2 * 2 + h] = ptx_pack(x, y);
        }
      }
#pragma unroll
      for (int i = 0; i < 32; ++i) o[i] *= f[i / 2 % 2];
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_rs(o, p[i], desc(v + i * 16 * D));
      asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    if (tid == 0) (void)sm.empty[st].arrive();
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = l[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const int r = row + 8 * h;
    if (r >= seq) continue;
    const int64_t at = int64_t(head) * seq + r;
    if (lane % 4 == 0) lse[at] = m[h] * scale + logf(sum);
    uint32_t* to = reinterpret_cast<uint32_t*>(out + at * D) + lane % 4;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[4 * i] = ptx_pack(o[4 * i + 2 * h] / sum, o[4 * i + 2 * h + 1] / sum);
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
  if (seq % BN) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 64, found " << seq;
  const CUtensorMap mq = encode(Q, seq, heads, BM), mk = encode(K, seq, heads, BN), mv = encode(V, seq, heads, BN);
  cudaError_t e = cudaFuncSetAttribute(mha, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha<<<dim3((seq + BM - 1) / BM, heads), THREADS, sizeof(Shared), stream>>>(
      mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()), int(seq));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
