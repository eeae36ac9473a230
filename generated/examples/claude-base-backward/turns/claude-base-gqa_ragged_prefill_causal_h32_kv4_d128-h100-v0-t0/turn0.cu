#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kQHeads = 32, kKVHeads = 4, kGroup = 8, kDim = 128;
constexpr int kQueries = 16;             // of a tile
constexpr int kRows = kQueries * kGroup; // 128
constexpr int kKeys = 128;               // of a K or V tile
constexpr int kStages = 2;
constexpr int kMaxSequences = 1024;
constexpr uint32_t kHalf = 128 * 128;    // bytes of a box: 128 rows of 64 elements
constexpr uint32_t kTile = 2 * kHalf;    // 32 KB

struct __align__(1024) SharedStorage {
  uint8_t q[kTile];
  uint8_t o[kTile];
  uint8_t k[kStages][kTile];
  uint8_t v[kStages][kTile];
  uint64_t q_full, q_empty;
  uint64_t k_full[kStages], k_empty[kStages];
  uint64_t v_full[kStages], v_empty[kStages];
  int qo[kMaxSequences + 1];
  int kv[kMaxSequences + 1];
  int first_tile[kMaxSequences + 1];
};

__device__ __forceinline__ uint32_t sa(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void mbar_init(uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sa(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sa(b)) : "memory");
}
__device__ __forceinline__ void mbar_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sa(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "W:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra W;\n"
      "}\n" ::"r"(sa(b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void tma_3d(void* dst, const CUtensorMap* map, uint64_t* bar, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          sa(dst)),
      "l"(map), "r"(sa(bar)), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ uint64_t make_desc(const void* p, uint32_t lbo) {
  uint64_t d = (sa(p) & 0x3FFFFu) >> 4;
  d |= static_cast<uint64_t>(lbo >> 4) << 16;
  d |= static_cast<uint64_t>(1024 >> 4) << 32;
  d |= static_cast<uint64_t>(1) << 62;
  return d;
}

#define R4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define R16(x, i) R4(x, i), R4(x, i + 4), R4(x, i + 8), R4(x, i + 12)
#define R64(x) R16(x, 0), R16(x, 16), R16(x, 32), R16(x, 48)
#define L64                                                                                                      \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "        \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "    \
  "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

__device__ __forceinline__ void wgmma_qk(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " L64 ", %64, %65, p, 1, 1, 0, 0;\n}\n"
      : R64(d)
      : "l"(a), "l"(b), "r"(add));
}
__device__ __forceinline__ void wgmma_pv(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " L64 ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
               : R64(d)
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_wait_all() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

struct Work {
  int head;            // key-value head
  int query, queries;  // first row of q, rows that exist
  int position;        // of the first query among the keys
  int key;             // first row of k and v
  int blocks;          // of kKeys
};

// Work item -> sequence and tile. Late tiles of a sequence see most keys and come first.
__device__ __forceinline__ Work find_work(const SharedStorage& sm, int sequences, int item) {
  Work w;
  w.head = item % kKVHeads;
  const int tile = item / kKVHeads;
  int lo = 0, hi = sequences;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (sm.first_tile[mid] <= tile) lo = mid; else hi = mid;
  }
  const int tiles = sm.first_tile[lo + 1] - sm.first_tile[lo];
  const int t = tiles - 1 - (tile - sm.first_tile[lo]);
  const int nq = sm.qo[lo + 1] - sm.qo[lo], nk = sm.kv[lo + 1] - sm.kv[lo];
  w.query = sm.qo[lo] + t * kQueries;
  w.queries = min(kQueries, nq - t * kQueries);
  w.position = t * kQueries + nk - nq;
  w.key = sm.kv[lo];
  w.blocks = (w.position + w.queries + kKeys - 1) / kKeys;
  return w;
}

__global__ void __launch_bounds__(384, 1)
    ragged_prefill(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v, const int* qo_indptr, const int* kv_indptr, int sequences,
                   float scale_log2, __nv_bfloat16* out, float* lse) {
  extern __shared__ uint8_t raw[];
  SharedStorage& sm = *reinterpret_cast<SharedStorage*>((reinterpret_cast<uintptr_t>(raw) + 1023) / 1024 * 1024);
  const int wg = threadIdx.x / 128;

  for (int i = threadIdx.x; i <= sequences; i += blockDim.x) {
    sm.qo[i] = qo_indptr[i];
    sm.kv[i] = kv_indptr[i];
  }
  if (threadIdx.x == 0) {
    mbar_init(&sm.q_full, 1);
    mbar_init(&sm.q_empty, 2);
    for (int s = 0; s < kStages; ++s) {
      mbar_init(&sm.k_full[s], 1);
      mbar_init(&sm.v_full[s], 1);
      mbar_init(&sm.k_empty[s], 2);
      mbar_init(&sm.v_empty[s], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    int n = 0;
    for (int i = 0; i < sequences; ++i) {
      sm.first_tile[i] = n;
      n += (sm.qo[i + 1] - sm.qo[i] + kQueries - 1) / kQueries;
    }
    sm.first_tile[sequences] = n;
  }
  __syncthreads();
  const int items = sm.first_tile[sequences] * kKVHeads;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == 0) {
      int n = 0, round = 0;  // tiles of K and V so far
      for (int item = blockIdx.x; item < items; item += gridDim.x, ++round) {
        const Work w = find_work(sm, sequences, item);
        mbar_wait(&sm.q_empty, (round & 1) ^ 1);
        mbar_expect(&sm.q_full, kTile);
        tma_3d(sm.q, &map_q, &sm.q_full, 0, w.head * kGroup, w.query);
        tma_3d(sm.q + kHalf, &map_q, &sm.q_full, 64, w.head * kGroup, w.query);
        for (int b = 0; b < w.blocks; ++b, ++n) {
          const int s = n % kStages;
          const uint32_t parity = ((n / kStages) & 1) ^ 1;
          const int row = w.key + b * kKeys;
          mbar_wait(&sm.k_empty[s], parity);
          mbar_expect(&sm.k_full[s], kTile);
          tma_3d(sm.k[s], &map_k, &sm.k_full[s], 0, w.head, row);
          tma_3d(sm.k[s] + kHalf, &map_k, &sm.k_full[s], 64, w.head, row);
          mbar_wait(&sm.v_empty[s], parity);
          mbar_expect(&sm.v_full[s], kTile);
          tma_3d(sm.v[s], &map_v, &sm.v_full[s], 0, w.head, row);
          tma_3d(sm.v[s] + kHalf, &map_v, &sm.v_full[s], 64, w.head, row);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int tid = threadIdx.x % 128, warp = tid / 32, lane = tid % 32;
    const int first_row = (wg - 1) * 64;
    const int row0 = first_row + warp * 16 + lane / 4;  // and row0 + 8
    int n = 0, round = 0;
    for (int item = blockIdx.x; item < items; item += gridDim.x, ++round) {
      const Work w = find_work(sm, sequences, item);
      const int last0 = w.position + row0 / kGroup, last1 = w.position + (row0 + 8) / kGroup;
      float o[64];
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] = 0.f;
      float max0 = -INFINITY, max1 = -INFINITY, sum0 = 0.f, sum1 = 0.f;
      mbar_wait(&sm.q_full, round & 1);
      for (int b = 0; b < w.blocks; ++b, ++n) {
        const int s = n % kStages;
        const uint32_t parity = (n / kStages) & 1;
        float x[64];
        mbar_wait(&sm.k_full[s], parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const uint32_t at = (k / 4) * kHalf + (k % 4) * 32;
          wgmma_qk(x, make_desc(sm.q + at + first_row * 128, 16), make_desc(sm.k[s] + at, 16), k > 0);
        }
        wgmma_commit();
        wgmma_wait_all();
        if (tid == 0) {
          mbar_arrive(&sm.k_empty[s]);
          if (b == w.blocks - 1) mbar_arrive(&sm.q_empty);
        }

        if ((b + 1) * kKeys > w.position) {
          const int key = b * kKeys + 2 * (lane % 4);
#pragma unroll
          for (int j = 0; j < 16; ++j) {
            if (key + 8 * j > last0) x[4 * j] = -INFINITY;
            if (key + 8 * j + 1 > last0) x[4 * j + 1] = -INFINITY;
            if (key + 8 * j > last1) x[4 * j + 2] = -INFINITY;
            if (key + 8 * j + 1 > last1) x[4 * j + 3] = -INFINITY;
          }
        }
        float m0 = max0, m1 = max1;
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          m0 = fmaxf(m0, fmaxf(x[4 * j], x[4 * j + 1]));
          m1 = fmaxf(m1, fmaxf(x[4 * j + 2], x[4 * j + 3]));
        }
        m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 1));
        m1 = fmaxf(m1, __shfl_xor_sync(0xffffffffu, m1, 1));
        m0 = fmaxf(m0, __shfl_xor_sync(0xffffffffu, m0, 2));
        m1 = fmaxf(m1, __shfl_xor_sync(0xffffffffu, m1, 2));
        const float a0 = ex2((max0 - m0) * scale_log2), a1 = ex2((max1 - m1) * scale_log2);
        max0 = m0;
        max1 = m1;
        const float s0 = m0 * scale_log2, s1 = m1 * scale_log2;
        sum0 *= a0;
        sum1 *= a1;
        uint32_t p[32];
#pragma unroll
        for (int j = 0; j < 16; ++j) {
          x[4 * j] = ex2(fmaf(x[4 * j], scale_log2, -s0));
          x[4 * j + 1] = ex2(fmaf(x[4 * j + 1], scale_log2, -s0));
          x[4 * j + 2] = ex2(fmaf(x[4 * j + 2], scale_log2, -s1));
          x[4 * j + 3] = ex2(fmaf(x[4 * j + 3], scale_log2, -s1));
          sum0 += x[4 * j] + x[4 * j + 1];
          sum1 += x[4 * j + 2] + x[4 * j + 3];
          p[2 * j] = pack(x[4 * j], x[4 * j + 1]);
          p[2 * j + 1] = pack(x[4 * j + 2], x[4 * j + 3]);
          o[4 * j] *= a0;
          o[4 * j + 1] *= a0;
          o[4 * j + 2] *= a1;
          o[4 * j + 3] *= a1;
        }
        mbar_wait(&sm.v_full[s], parity);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < 8; ++k)
          wgmma_pv(o, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], make_desc(sm.v[s] + k * 2048, kHalf));
        wgmma_commit();
        wgmma_wait_all();
        if (tid == 0) mbar_arrive(&sm.v_empty[s]);
      }

      sum0 += __shfl_xor_sync(0xffffffffu, sum0, 1);
      sum1 += __shfl_xor_sync(0xffffffffu, sum1, 1);
      sum0 += __shfl_xor_sync(0xffffffffu, sum0, 2);
      sum1 += __shfl_xor_sync(0xffffffffu, sum1, 2);
      const float r0 = 1.f / sum0, r1 = 1.f / sum1;
      if (lane % 4 == 0) {
        if (row0 / kGroup < w.queries)
          lse[(w.query + row0 / kGroup) * kQHeads + w.head * kGroup + row0 % kGroup] = max0 * scale_log2 + lg2(sum0);
        if ((row0 + 8) / kGroup < w.queries)
          lse[(w.query + (row0 + 8) / kGroup) * kQHeads + w.head * kGroup + row0 % kGroup] = max1 * scale_log2 + lg2(sum1);
      }
      // Through shared memory, so that 16 threads write the 256 bytes of a row.
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int r = first_row + warp * 16 + lane % 16;
        const int chunk = ((k % 4) * 2 + lane / 16) ^ (r & 7);
        const uint32_t at = sa(sm.o + (k / 4) * kHalf + r * 128 + chunk * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                     "r"(pack(o[8 * k] * r0, o[8 * k + 1] * r0)), "r"(pack(o[8 * k + 2] * r1, o[8 * k + 3] * r1)),
                     "r"(pack(o[8 * k + 4] * r0, o[8 * k + 5] * r0)), "r"(pack(o[8 * k + 6] * r1, o[8 * k + 7] * r1))
                     : "memory");
      }
      asm volatile("bar.sync %0, 128;" ::"r"(wg) : "memory");
      const int chunk = tid % 16;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int r = first_row + i * 8 + tid / 16;
        if (r / kGroup < w.queries) {
          const uint4 value = *reinterpret_cast<const uint4*>(sm.o + (chunk / 8) * kHalf + r * 128 + ((chunk % 8) ^ (r & 7)) * 16);
          const size_t row = (size_t)(w.query + r / kGroup) * kQHeads + w.head * kGroup + r % kGroup;
          *reinterpret_cast<uint4*>(out + row * kDim + chunk * 8) = value;
        }
      }
      asm volatile("bar.sync %0, 128;" ::"r"(wg) : "memory");
    }
  }
}

CUtensorMap encode(const tvm::ffi::TensorView& x, uint32_t box_heads, uint32_t box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {kDim, (cuuint64_t)x.size(1), (cuuint64_t)x.size(0)};
  const cuuint64_t strides[2] = {kDim * 2, (cuuint64_t)x.size(1) * kDim * 2};
  const cuuint32_t box[3] = {64, box_heads, box_rows};
  const cuuint32_t ones[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data_ptr(), dims, strides, box,
                                            ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return map;
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v, tvm::ffi::TensorView qo_indptr,
         tvm::ffi::TensorView kv_indptr, double sm_scale, tvm::ffi::TensorView output, tvm::ffi::TensorView lse) {
  const int sequences = (int)qo_indptr.size(0) - 1;
  if (q.size(1) != kQHeads || k.size(1) != kKVHeads || q.size(2) != kDim) TVM_FFI_THROW(RuntimeError) << "unexpected heads";
  if (sequences > kMaxSequences) TVM_FFI_THROW(RuntimeError) << "at most " << kMaxSequences << " sequences";
  if (q.size(0) == 0 || sequences <= 0) return;
  const cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(q.device().device_type, q.device().device_id);
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, q.device().device_id);
  const int smem = sizeof(SharedStorage) + 1024;
  cudaError_t e = cudaFuncSetAttribute(ragged_prefill, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "cudaFuncSetAttribute: " << cudaGetErrorString(e);
  ragged_prefill<<<sms, 384, smem, stream>>>(encode(q, kGroup, kQueries), encode(k, 1, kKeys), encode(v, 1, kKeys),
                                             (const int*)qo_indptr.data_ptr(), (const int*)kv_indptr.data_ptr(),
                                             sequences, (float)(sm_scale * 1.4426950408889634),
                                             (__nv_bfloat16*)output.data_ptr(), (float*)lse.data_ptr());
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "ragged_prefill: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
