// gqa_paged_decode_h24_kv8_d128_ps1: cluster of 8 = split KV, transposed wgmma (N = 8), DSMEM merge.
#include <cooperative_groups.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace cg = cooperative_groups;

constexpr int kQHeads = 24;
constexpr int kKvHeads = 8;
constexpr int kGroup = kQHeads / kKvHeads;  // 3
constexpr int kD = 128;
constexpr int kCluster = 8;
constexpr int kTile = 64;  // keys
constexpr int kStages = 2;
constexpr int kThreads = 128;
constexpr uint32_t kPanel = kTile * 128;        // 64 keys x 64 columns, 128-byte swizzle
constexpr uint32_t kTileBytes = 2 * kPanel;     // 16 KB

struct __align__(1024) Smem {
  uint8_t k[kStages][kTileBytes];
  uint8_t v[kStages][kTileBytes];
  uint8_t q[2][1024];  // 8 rows (3 heads, 5 of zeros) x 128 columns in 2 panels
  uint8_t p[1024];     // 8 rows (heads) x 64 keys
  float red[4][8];     // per-warp column maxima, later sums
  float part_m[8];
  float part_l[8];
  float part_o[kGroup][kD];
};

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(lbo >> 4) << 16) |
         (static_cast<uint64_t>(sbo >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
}

// D[64][8] (+)= A B, both from shared memory; kTransA: A is stored M-major.
template <int kTransA>
__device__ __forceinline__ void wgmma_n8(float (&d)[4], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, %7, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA));
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit_wait() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(kThreads)
    decode(const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k_cache,
           const __nv_bfloat16* __restrict__ v_cache, const int* __restrict__ kv_indptr,
           const int* __restrict__ kv_indices, float scale_log2, __nv_bfloat16* __restrict__ output,
           float* __restrict__ lse) {
  extern __shared__ uint8_t smem_raw[];
  Smem& sm = *reinterpret_cast<Smem*>(smem_raw + ((1024 - (smem_addr(smem_raw) & 1023)) & 1023));
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int kv_head = blockIdx.y;
  const int seq = blockIdx.z;
  const int tid = threadIdx.x;
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int quad = lane % 4;  // columns 2 quad and 2 quad + 1 of the accumulators
  const int g = lane / 4;

  const int kv0 = __ldg(kv_indptr + seq);
  const int len = __ldg(kv_indptr + seq + 1) - kv0;
  const int chunk = ((len + kCluster - 1) / kCluster + 7) / 8 * 8;
  const int begin = min(rank * chunk, len);
  const int end = min(begin + chunk, len);
  const int n_tiles = (end - begin + kTile - 1) / kTile;

  // Gather: thread -> 16-byte piece tid % 16 of rows tid / 16 + 8 i. The row modulo 8 is the same for all of them.
  const int piece = tid % 16;
  const int row0 = tid / 16;
  const uint32_t dst0 = (piece / 8) * kPanel + row0 * 128 + (((piece % 8) ^ row0) << 4);
  auto load_tile = [&](int t) {
    if (t < n_tiles) {
      const int st = t % kStages;
      int64_t src[8];
      bool live[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int key = begin + t * kTile + row0 + 8 * i;
        live[i] = key < end;
        const int page = live[i] ? __ldg(kv_indices + kv0 + key) : 0;
        src[i] = (static_cast<int64_t>(page) * kKvHeads + kv_head) * kD + piece * 8;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        __pipeline_memcpy_async(sm.k[st] + dst0 + i * 1024, k_cache + src[i], 16, live[i] ? 0 : 16);
      __pipeline_commit();
#pragma unroll
      for (int i = 0; i < 8; ++i)
        __pipeline_memcpy_async(sm.v[st] + dst0 + i * 1024, v_cache + src[i], 16, live[i] ? 0 : 16);
      __pipeline_commit();
    } else {
      __pipeline_commit();
      __pipeline_commit();
    }
  };
  load_tile(0);
  load_tile(1);

  // Query heads of the group, as the 8-row B operand.
  {
    const int row = tid / 16;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (row < kGroup)
      value = __ldg(reinterpret_cast<const uint4*>(
          q + (static_cast<int64_t>(seq) * kQHeads + kv_head * kGroup + row) * kD + piece * 8));
    *reinterpret_cast<uint4*>(sm.q[piece / 8] + row * 128 + (((piece % 8) ^ row) << 4)) = value;
  }

  float o[2][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) o[i][j] = 0.f;
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};

  for (int t = 0; t < n_tiles; ++t) {
    const int st = t % kStages;
    __pipeline_wait_prior(3);  // K of this tile is here
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();

    float s[4];
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 8; ++i)
      wgmma_n8<0>(s, make_desc(smem_addr(sm.k[st]) + (i / 4) * kPanel + (i % 4) * 32, 16, 1024),
                  make_desc(smem_addr(sm.q[i / 4]) + (i % 4) * 32, 16, 1024), i > 0);
    wgmma_commit_wait();
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(s[i])::"memory");

    const int key0 = warp * 16 + g;  // keys of this thread: key0, key0 + 8
    const int left = end - begin - t * kTile;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[i] *= scale_log2;
      if (key0 + (i / 2) * 8 >= left) s[i] = -INFINITY;
    }
    float mx[2] = {fmaxf(s[0], s[2]), fmaxf(s[1], s[3])};
#pragma unroll
    for (int x = 4; x < 32; x *= 2) {
      mx[0] = fmaxf(mx[0], __shfl_xor_sync(0xffffffffu, mx[0], x));
      mx[1] = fmaxf(mx[1], __shfl_xor_sync(0xffffffffu, mx[1], x));
    }
    if (g == 0) {
      sm.red[warp][2 * quad] = mx[0];
      sm.red[warp][2 * quad + 1] = mx[1];
    }
    __syncthreads();
    float alpha[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float mn = m[c];
#pragma unroll
      for (int w = 0; w < 4; ++w) mn = fmaxf(mn, sm.red[w][2 * quad + c]);
      alpha[c] = ex2(m[c] - mn);
      m[c] = mn;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int c = i & 1;
      const int key = key0 + (i / 2) * 8;
      const int head = 2 * quad + c;
      const __nv_bfloat16 e = __float2bfloat16_rn(ex2(s[i] - m[c]));
      *reinterpret_cast<__nv_bfloat16*>(sm.p + head * 128 + (((key / 8) ^ head) << 4) + (key % 8) * 2) = e;
      s[i] = __bfloat162float(e);
    }
    l[0] = l[0] * alpha[0] + s[0] + s[2];
    l[1] = l[1] * alpha[1] + s[1] + s[3];
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] *= alpha[j & 1];

    __pipeline_wait_prior(2);  // V of this tile is here
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTile / 16; ++i) {
      const uint64_t desc_p = make_desc(smem_addr(sm.p) + i * 32, 16, 1024);
      wgmma_n8<1>(o[0], make_desc(smem_addr(sm.v[st]) + i * 2048, kPanel, 1024), desc_p, 1);
      wgmma_n8<1>(o[1], make_desc(smem_addr(sm.v[st]) + kPanel + i * 2048, kPanel, 1024), desc_p, 1);
    }
    wgmma_commit_wait();
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) asm volatile("" : "+f"(o[i][j])::"memory");
    __syncthreads();  // the stage, P and the maxima may be overwritten
    load_tile(t + kStages);
  }

  // Partial results of this CTA.
#pragma unroll
  for (int x = 4; x < 32; x *= 2) {
    l[0] += __shfl_xor_sync(0xffffffffu, l[0], x);
    l[1] += __shfl_xor_sync(0xffffffffu, l[1], x);
  }
  if (g == 0) {
    sm.red[warp][2 * quad] = l[0];
    sm.red[warp][2 * quad + 1] = l[1];
    if (warp == 0) {
      sm.part_m[2 * quad] = m[0];
      sm.part_m[2 * quad + 1] = m[1];
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int head = 2 * quad + (j & 1);
      const int dim = i * 64 + warp * 16 + g + (j / 2) * 8;
      if (head < kGroup) sm.part_o[head][dim] = o[i][j];
    }
  __syncthreads();
  if (tid < 8) sm.part_l[tid] = sm.red[0][tid] + sm.red[1][tid] + sm.red[2][tid] + sm.red[3][tid];
  cluster.sync();

  // Each CTA merges 16 of the 128 columns of the three heads.
  if (tid < kGroup * 16) {
    const int head = tid / 16;
    const int dim = rank * 16 + tid % 16;
    float pm[kCluster], pl[kCluster], po[kCluster];
    float top = -INFINITY;
#pragma unroll
    for (int r = 0; r < kCluster; ++r) {
      pm[r] = *cluster.map_shared_rank(&sm.part_m[head], r);
      pl[r] = *cluster.map_shared_rank(&sm.part_l[head], r);
      po[r] = *cluster.map_shared_rank(&sm.part_o[head][dim], r);
      top = fmaxf(top, pm[r]);
    }
    float sum = 0.f, acc = 0.f;
#pragma unroll
    for (int r = 0; r < kCluster; ++r) {
      const float w = ex2(pm[r] - top);  // 0 for a CTA without keys
      sum += w * pl[r];
      acc += w * po[r];
    }
    const int64_t row = static_cast<int64_t>(seq) * kQHeads + kv_head * kGroup + head;
    output[row * kD + dim] = __float2bfloat16_rn(acc / sum);
    if (dim == 0) lse[row] = top + log2f(sum);
  }
  cluster.sync();  // shared memory stays until everybody has read it
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k_cache, tvm::ffi::TensorView v_cache,
         tvm::ffi::TensorView kv_indptr, tvm::ffi::TensorView kv_indices, double sm_scale,
         tvm::ffi::TensorView output, tvm::ffi::TensorView lse) {
  if (q.ndim() != 3 || q.size(1) != kQHeads || q.size(2) != kD)
    TVM_FFI_THROW(RuntimeError) << "expected q[batch, 24, 128]";
  const int64_t batch = q.size(0);
  if (batch == 0) return;
  if (batch > 65535) TVM_FFI_THROW(RuntimeError) << "batch too large";
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  const size_t smem = sizeof(Smem) + 1024;
  cudaError_t error =
      cudaFuncSetAttribute(decode, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);

  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(kCluster, kKvHeads, static_cast<unsigned>(batch));
  config.blockDim = dim3(kThreads, 1, 1);
  config.dynamicSmemBytes = smem;
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = kCluster;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  error = cudaLaunchKernelEx(&config, decode, static_cast<const __nv_bfloat16*>(q.data_ptr()),
                             static_cast<const __nv_bfloat16*>(k_cache.data_ptr()),
                             static_cast<const __nv_bfloat16*>(v_cache.data_ptr()),
                             static_cast<const int*>(kv_indptr.data_ptr()),
                             static_cast<const int*>(kv_indices.data_ptr()),
                             static_cast<float>(sm_scale * 1.4426950408889634), 
                             static_cast<__nv_bfloat16*>(output.data_ptr()), static_cast<float*>(lse.data_ptr()));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching decode: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
