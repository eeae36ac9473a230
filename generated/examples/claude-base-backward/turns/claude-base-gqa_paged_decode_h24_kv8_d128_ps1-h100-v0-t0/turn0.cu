#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace cg = cooperative_groups;

namespace {

constexpr int kQHeads = 24, kKVHeads = 8, kGroup = 3, kDim = 128;
constexpr int kSplits = 8;  // blocks of a cluster
constexpr int kTile = 64;   // keys
constexpr int kBoxBytes = kTile * 128;

struct __align__(1024) Storage {
  uint8_t k[2][2][kBoxBytes];  // [buffer][half of D][64 rows of 128 bytes, swizzled]
  uint8_t v[2][2][kBoxBytes];
  uint8_t q[2][8 * 128];       // [half of D][8 heads, 5 of them zero]
  uint8_t p[8 * 128];          // [8 heads][64 keys]
  float warp_max[4][8];
  float warp_sum[4][8];
  float out[kGroup][kDim];     // partial result of this block, not normalized
  float max[8], sum[8];
};

__device__ __forceinline__ uint32_t addr_of(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void copy16(void* dst, const void* src, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(addr_of(dst)), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ uint64_t desc(const void* p) {
  return (uint64_t)((addr_of(p) & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// D[64 x 8] (+)= A B; kTransA: A has its rows (M) contiguous in shared memory.
template <int kTransA>
__device__ __forceinline__ void mma_m64n8(float (&d)[4], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %6, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, %7, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b), "r"(add), "n"(kTransA));
}
__device__ __forceinline__ void mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_end() {
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}
__device__ __forceinline__ void publish() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void gather(Storage& s, int buffer, const __nv_bfloat16* k_cache, const __nv_bfloat16* v_cache,
                                       const int* indices, int keys, int kv_head) {
  const int chunk = threadIdx.x % 16;
#pragma unroll
  for (int i = 0; i < kTile / 8; ++i) {
    const int row = threadIdx.x / 16 + 8 * i;
    const bool valid = row < keys;
    const int64_t page = valid ? indices[row] : 0;
    const int64_t at = (page * kKVHeads + kv_head) * kDim + chunk * 8;
    const int where = row * 128 + (((chunk % 8) ^ (row % 8)) * 16);
    copy16(s.k[buffer][chunk / 8] + where, k_cache + at, valid ? 16 : 0);
    copy16(s.v[buffer][chunk / 8] + where, v_cache + at, valid ? 16 : 0);
  }
  copy_commit();
}

__global__ void __cluster_dims__(kSplits, 1, 1) __launch_bounds__(128)
    paged_decode(const __nv_bfloat16* __restrict__ q, const __nv_bfloat16* __restrict__ k_cache,
                 const __nv_bfloat16* __restrict__ v_cache, const int* __restrict__ indptr,
                 const int* __restrict__ indices, float scale_log2, __nv_bfloat16* __restrict__ output,
                 float* __restrict__ lse) {
  extern __shared__ uint8_t raw[];
  Storage& s = *reinterpret_cast<Storage*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~(uintptr_t)1023);
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = cluster.block_rank();
  const int kv_head = blockIdx.y, sequence = blockIdx.z;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

  const int begin = indptr[sequence], length = indptr[sequence + 1] - begin;
  const int share = (length + kSplits - 1) / kSplits;
  const int first = min(rank * share, length), keys = min(share, length - first);
  const int tiles = (keys + kTile - 1) / kTile;
  const int* mine = indices + begin + first;

  if (tiles > 0) gather(s, 0, k_cache, v_cache, mine, keys, kv_head);
  {
    // Q: 8 rows of 256 bytes, a row for 16 threads.
    const int row = threadIdx.x / 16, chunk = threadIdx.x % 16;
    uint4 value = make_uint4(0, 0, 0, 0);
    if (row < kGroup)
      value = reinterpret_cast<const uint4*>(q + ((int64_t)sequence * kQHeads + kv_head * kGroup + row) * kDim)[chunk];
    *reinterpret_cast<uint4*>(s.q[chunk / 8] + row * 128 + ((chunk % 8) ^ row) * 16) = value;
  }

  // A thread's columns in every accumulator are the heads 2 (lane % 4) and the next one.
  const int head = 2 * (lane % 4);
  float acc[2][4] = {};
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
  for (int t = 0; t < tiles; ++t) {
    const int buffer = t & 1, left = keys - t * kTile;
    if (t + 1 < tiles) {
      gather(s, buffer ^ 1, k_cache, v_cache, mine + (t + 1) * kTile, left - kTile, kv_head);
      copy_wait<1>();
    } else {
      copy_wait<0>();
    }
    publish();

    float x[4];
    mma_begin();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      mma_m64n8<0>(x, desc(s.k[buffer][k / 4] + (k % 4) * 32), desc(s.q[k / 4] + (k % 4) * 32), k != 0);
    mma_end();

    const int key = warp * 16 + lane / 4;
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (key + (e / 2) * 8 >= left) x[e] = -INFINITY;
    float top[2] = {fmaxf(x[0], x[2]), fmaxf(x[1], x[3])};
#pragma unroll
    for (int c = 0; c < 2; ++c)
#pragma unroll
      for (int d = 4; d < 32; d *= 2) top[c] = fmaxf(top[c], __shfl_xor_sync(0xffffffffu, top[c], d));
    if (lane < 4) {
      s.warp_max[warp][head] = top[0];
      s.warp_max[warp][head + 1] = top[1];
    }
    __syncthreads();
    float rescale[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float best = m[c];
#pragma unroll
      for (int w = 0; w < 4; ++w) best = fmaxf(best, s.warp_max[w][head + c]);
      rescale[c] = ex2((m[c] - best) * scale_log2);
      m[c] = best;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int c = e % 2, row = key + (e / 2) * 8;
      const float p = ex2((x[e] - m[c]) * scale_log2);
      l[c] = (e < 2 ? l[c] * rescale[c] : l[c]) + p;
      const int n = head + c;
      *reinterpret_cast<__nv_bfloat16*>(s.p + n * 128 + (((row / 8) ^ n) * 16) + (row % 8) * 2) = __float2bfloat16(p);
    }
    publish();

#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[h][e] *= rescale[e % 2];
    mma_begin();
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int k = 0; k < kTile / 16; ++k)
        mma_m64n8<1>(acc[h], desc(s.v[buffer][h] + k * 2048), desc(s.p + k * 32), 1);
    mma_end();
    __syncthreads();
  }

  // Sums over the keys of all lanes and warps; the maximum is the same in all of them.
#pragma unroll
  for (int c = 0; c < 2; ++c)
#pragma unroll
    for (int d = 4; d < 32; d *= 2) l[c] += __shfl_xor_sync(0xffffffffu, l[c], d);
  if (lane < 4) {
    s.warp_sum[warp][head] = l[0];
    s.warp_sum[warp][head + 1] = l[1];
    if (warp == 0) {
      s.max[head] = m[0];
      s.max[head + 1] = m[1];
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (head + e % 2 < kGroup) s.out[head + e % 2][h * 64 + warp * 16 + lane / 4 + (e / 2) * 8] = acc[h][e];
  __syncthreads();
  if (threadIdx.x < 8)
    s.sum[threadIdx.x] = s.warp_sum[0][threadIdx.x] + s.warp_sum[1][threadIdx.x] + s.warp_sum[2][threadIdx.x] +
                         s.warp_sum[3][threadIdx.x];
  cluster.sync();

  // Each block combines 16 elements of D for the three heads.
  if (threadIdx.x < kGroup * 16) {
    const int h = threadIdx.x / 16, d = rank * 16 + threadIdx.x % 16;
    float best = -INFINITY;
#pragma unroll
    for (int r = 0; r < kSplits; ++r) best = fmaxf(best, cluster.map_shared_rank(&s, r)->max[h]);
    float sum = 0.f, value = 0.f;
#pragma unroll
    for (int r = 0; r < kSplits; ++r) {
      const Storage* other = cluster.map_shared_rank(&s, r);
      const float weight = ex2((other->max[h] - best) * scale_log2);
      sum += weight * other->sum[h];
      value += weight * other->out[h][d];
    }
    const int64_t row = (int64_t)sequence * kQHeads + kv_head * kGroup + h;
    output[row * kDim + d] = __float2bfloat16(value / sum);
    if (d == 0) lse[row] = best * scale_log2 + log2f(sum);
  }
  cluster.sync();
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k_cache, tvm::ffi::TensorView v_cache,
         tvm::ffi::TensorView kv_indptr, tvm::ffi::TensorView kv_indices, double sm_scale, tvm::ffi::TensorView output,
         tvm::ffi::TensorView lse) {
  const int batch = (int)q.size(0);
  if (batch == 0) return;
  if (q.size(1) != kQHeads || q.size(2) != kDim || k_cache.size(2) != kKVHeads)
    TVM_FFI_THROW(RuntimeError) << "expected 24 query heads, 8 key-value heads, dimension 128";
  const cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(q.device().device_type, q.device().device_id);
  const int smem = sizeof(Storage) + 1024;
  cudaError_t error = cudaFuncSetAttribute(paged_decode, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "cudaFuncSetAttribute: " << cudaGetErrorString(error);
  paged_decode<<<dim3(kSplits, kKVHeads, batch), 128, smem, stream>>>(
      static_cast<const __nv_bfloat16*>(q.data_ptr()), static_cast<const __nv_bfloat16*>(k_cache.data_ptr()),
      static_cast<const __nv_bfloat16*>(v_cache.data_ptr()), static_cast<const int*>(kv_indptr.data_ptr()),
      static_cast<const int*>(kv_indices.data_ptr()), static_cast<float>(sm_scale * 1.4426950408889634),
      static_cast<__nv_bfloat16*>(output.data_ptr()), static_cast<float*>(lse.data_ptr()));
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "paged_decode: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
