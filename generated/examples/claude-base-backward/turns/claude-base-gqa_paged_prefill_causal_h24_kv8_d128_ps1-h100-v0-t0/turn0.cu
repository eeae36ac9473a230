#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int QO_HEADS = 24, KV_HEADS = 8, GROUP = 3, DIM = 128;
constexpr int BM = 64, BN = 64, STAGES = 4;
constexpr uint32_t HALF_BYTES = 64 * 128;          // 64 rows of 64 elements
constexpr uint32_t TILE_BYTES = 2 * HALF_BYTES;    // 64 rows of 128 elements
constexpr uint32_t OFF_Q = 0;                      // one tile for each head
constexpr uint32_t OFF_K = GROUP * TILE_BYTES;
constexpr uint32_t OFF_V = OFF_K + STAGES * TILE_BYTES;
constexpr uint32_t OFF_BAR = OFF_V + STAGES * TILE_BYTES;
constexpr uint32_t SMEM = OFF_BAR + 128 + 1024;
constexpr int THREADS = 128 * (GROUP + 1);

__device__ __forceinline__ uint32_t saddr(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_arrive_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t phase) {
  uint32_t ready = 0;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
        "selp.b32 %0, 1, 0, p;\n\t}"
        : "=r"(ready)
        : "r"(bar), "r"(phase)
        : "memory");
  } while (!ready);
}
__device__ __forceinline__ void cp_async16(uint32_t dst, const void* src, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(src), "r"(bytes) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N) : "memory");
}
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

__device__ __forceinline__ uint64_t desc(uint32_t addr, uint32_t lead = 16, uint32_t stride = 1024) {
  return (uint64_t)((addr & 0x3FFFF) >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

#define E4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define E16(x, i) E4(x, i), E4(x, i + 4), E4(x, i + 8), E4(x, i + 12)

__device__ __forceinline__ void mma_qk(float (&s)[32], uint64_t a, uint64_t b, int scale_d) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : E16(s, 0), E16(s, 16)
      : "l"(a), "l"(b), "r"(scale_d));
}
__device__ __forceinline__ void mma_pv(float (&o)[64], const uint32_t* p, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      : E16(o, 0), E16(o, 16), E16(o, 32), E16(o, 48)
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}
__device__ __forceinline__ float fexp2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack_bf16x2(float a, float b) {
  __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
  return *(uint32_t*)&h;
}

__global__ void __launch_bounds__(THREADS, 1)
    paged_prefill(const __grid_constant__ CUtensorMap q_map, const __nv_bfloat16* __restrict__ k_cache,
                  const __nv_bfloat16* __restrict__ v_cache, const int* __restrict__ qo_indptr,
                  const int* __restrict__ kv_indptr, const int* __restrict__ kv_indices, int sequences,
                  float scale_log2, __nv_bfloat16* __restrict__ out, float* __restrict__ lse) {
  extern __shared__ uint8_t smem_raw[];
  const uint32_t base = (saddr(smem_raw) + 1023) & ~1023;
  const uint32_t bar_q = base + OFF_BAR, bar_full = bar_q + 8, bar_empty = bar_full + 8 * STAGES;

  // Which sequence and which tile of it; blocks beyond the last tile have nothing to do.
  int tile = gridDim.x - 1 - blockIdx.x, seq = 0, q_begin = 0, q_len = 0;
  bool found = false;
  for (; seq < sequences; ++seq) {
    q_begin = qo_indptr[seq];
    q_len = qo_indptr[seq + 1] - q_begin;
    const int tiles = (q_len + BM - 1) / BM;
    if (tile < tiles) {
      found = true;
      break;
    }
    tile -= tiles;
  }
  if (!found) return;
  const int kv_begin = kv_indptr[seq], kv_len = kv_indptr[seq + 1] - kv_begin;
  const int offset = kv_len - q_len;
  const int kv_head = blockIdx.y;
  const int seen = min(kv_len, (tile + 1) * BM + offset);
  const int blocks = (seen + BN - 1) / BN;

  if (threadIdx.x == 0) {
    mbar_init(bar_q, 1);
    for (int s = 0; s < STAGES; ++s) {
      mbar_init(bar_full + 8 * s, 128);
      mbar_init(bar_empty + 8 * s, GROUP);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();

  const int wg = threadIdx.x / 128;
  const int tid = threadIdx.x % 128;
  if (wg == GROUP) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;\n");
    if (tid == 0) {
      mbar_arrive_tx(bar_q, GROUP * TILE_BYTES);
      for (int h = 0; h < GROUP; ++h)
        for (int half = 0; half < 2; ++half)
          asm volatile(
              "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
              "[%2];\n" ::"r"(base + OFF_Q + h * TILE_BYTES + half * HALF_BYTES),
              "l"(&q_map), "r"(bar_q), "r"(half * 64), "r"(kv_head * GROUP + h), "r"(q_begin + tile * BM)
              : "memory");
    }
    const int chunk = tid % 16, row0 = tid / 16;
    const uint32_t half = (chunk / 8) * HALF_BYTES;
    for (int b = 0; b < blocks; ++b) {
      const int s = b % STAGES;
      mbar_wait(bar_empty + 8 * s, ((b / STAGES) & 1) ^ 1);
      const uint32_t k_tile = base + OFF_K + s * TILE_BYTES + half, v_tile = base + OFF_V + s * TILE_BYTES + half;
#pragma unroll
      for (int i = 0; i < BN / 8; ++i) {
        const int row = row0 + 8 * i, key = b * BN + row;
        const bool valid = key < kv_len;
        const int page = valid ? kv_indices[kv_begin + key] : 0;
        const size_t at = ((size_t)page * KV_HEADS + kv_head) * DIM + chunk * 8;
        const uint32_t where = row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
        cp_async16(k_tile + where, k_cache + at, valid);
        cp_async16(v_tile + where, v_cache + at, valid);
      }
      cp_async_commit();
      // The tile before this one has landed: hand it over.
      if (b > 0) {
        cp_async_wait<1>();
        fence_async();
        mbar_arrive(bar_full + 8 * ((b - 1) % STAGES));
      }
    }
    cp_async_wait<0>();
    fence_async();
    mbar_arrive(bar_full + 8 * ((blocks - 1) % STAGES));
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 152;\n");
    const int warp = tid / 32, lane = tid % 32;
    const int head = kv_head * GROUP + wg;
    const int q0 = tile * BM + warp * 16 + lane / 4, q1 = q0 + 8;
    const uint32_t q_tile = base + OFF_Q + wg * TILE_BYTES;
    float o[64];
    for (int i = 0; i < 64; ++i) o[i] = 0.f;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
    mbar_wait(bar_q, 0);
    for (int b = 0; b < blocks; ++b) {
      const int s = b % STAGES;
      const uint32_t k_tile = base + OFF_K + s * TILE_BYTES, v_tile = base + OFF_V + s * TILE_BYTES;
      mbar_wait(bar_full + 8 * s, (b / STAGES) & 1);
      float x[32];
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const uint32_t at = (k / 4) * HALF_BYTES + (k % 4) * 32;
        mma_qk(x, desc(q_tile + at), desc(k_tile + at), k);
      }
      wgmma_commit();
      wgmma_wait<0>();
      if ((b + 1) * BN > tile * BM + offset) {
#pragma unroll
        for (int j = 0; j < 32; ++j) {
          const int key = b * BN + (j / 4) * 8 + (lane % 4) * 2 + (j & 1);
          if (key > ((j & 2) ? q1 : q0) + offset) x[j] = -INFINITY;
        }
      }
      uint32_t p[16];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float mx = m[r];
#pragma unroll
        for (int j = 0; j < 8; ++j) mx = fmaxf(mx, fmaxf(x[4 * j + 2 * r], x[4 * j + 2 * r + 1]));
        mx = fmaxf(mx, __shfl_xor_sync(0xffffffff, mx, 1));
        mx = fmaxf(mx, __shfl_xor_sync(0xffffffff, mx, 2));
        const float rescale = fexp2((m[r] - mx) * scale_log2);
        m[r] = mx;
        l[r] *= rescale;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float e0 = fexp2((x[4 * j + 2 * r] - mx) * scale_log2);
          const float e1 = fexp2((x[4 * j + 2 * r + 1] - mx) * scale_log2);
          l[r] += e0 + e1;
          p[2 * j + r] = pack_bf16x2(e0, e1);
        }
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          o[4 * j + 2 * r] *= rescale;
          o[4 * j + 2 * r + 1] *= rescale;
        }
      }
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < 4; ++k) mma_pv(o, p + 4 * k, desc(v_tile + k * 2048, HALF_BYTES));
      wgmma_commit();
      wgmma_wait<0>();
      if (tid == 0) mbar_arrive(bar_empty + 8 * s);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffff, l[r], 2);
      const int query = r ? q1 : q0;
      if (query >= q_len) continue;
      const float inv = 1.f / l[r];
      const size_t row = (size_t)(q_begin + query) * QO_HEADS + head;
      if (lane % 4 == 0) lse[row] = m[r] * scale_log2 + log2f(l[r]);
#pragma unroll
      for (int j = 0; j < 16; ++j)
        *(uint32_t*)(out + row * DIM + 8 * j + 2 * (lane % 4)) =
            pack_bf16x2(o[4 * j + 2 * r] * inv, o[4 * j + 2 * r + 1] * inv);
    }
  }
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k_cache, tvm::ffi::TensorView v_cache,
         tvm::ffi::TensorView qo_indptr, tvm::ffi::TensorView kv_indptr, tvm::ffi::TensorView kv_indices, double sm_scale,
         tvm::ffi::TensorView output, tvm::ffi::TensorView lse) {
  const int total_q = (int)q.size(0);
  const int sequences = (int)qo_indptr.size(0) - 1;
  if (total_q == 0) return;
  cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(q.device().device_type, q.device().device_id);

  CUtensorMap q_map;
  cuuint64_t dims[3] = {DIM, QO_HEADS, (cuuint64_t)total_q};
  cuuint64_t strides[2] = {DIM * 2, QO_HEADS * DIM * 2};
  cuuint32_t box[3] = {64, 1, BM};
  cuuint32_t ones[3] = {1, 1, 1};
  CUresult r = cuTensorMapEncodeTiled(&q_map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, q.data_ptr(), dims, strides, box, ones,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled returned " << (int)r;

  cudaError_t e = cudaFuncSetAttribute(paged_prefill, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  // At most one partial tile for each sequence.
  dim3 grid(total_q / BM + sequences, KV_HEADS);
  paged_prefill<<<grid, THREADS, SMEM, stream>>>(
      q_map, (const __nv_bfloat16*)k_cache.data_ptr(), (const __nv_bfloat16*)v_cache.data_ptr(),
      (const int*)qo_indptr.data_ptr(), (const int*)kv_indptr.data_ptr(), (const int*)kv_indices.data_ptr(), sequences,
      (float)sm_scale * 1.44269504f, (__nv_bfloat16*)output.data_ptr(), (float*)lse.data_ptr());
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
