// C = A B^T, bf16 in, fp32 accumulation, bf16 out. N = 7168, K = 5120.
// CTA tile 128 x 256 x 64. Cluster of 2 along M: both CTAs need the same 256 rows of B, so each loads half of them and
// multicasts that half to both. 4 stages of 48 KB, and 32 KB to stage the output.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int kBM = 128;
constexpr int kBN = 256;
constexpr int kBK = 64;
constexpr int kStages = 4;
constexpr int kKBlocks = kK / kBK;
constexpr int kNTiles = kN / kBN;
constexpr int kThreads = 384;
constexpr uint32_t kABytes = kBM * kBK * 2;          // 16 KB
constexpr uint32_t kBBytes = kBN * kBK * 2;          // 32 KB
constexpr uint32_t kStageBytes = kABytes + kBBytes;  // what arrives in one CTA a stage
constexpr uint32_t kOutBytes = 64 * 128 * 2;         // staging of one consumer warpgroup
constexpr int kSmemBytes = kStages * kStageBytes + 2 * kOutBytes + 1024;
constexpr int kGroupM = 8;  // pairs of M tiles that are walked together, for L2

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void wait_parity(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}

// K-major operand, 128 byte swizzle: 8 rows of 128 bytes an atom, 1024 bytes from one to the next.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  uint64_t d = 0;
  d |= static_cast<uint64_t>((addr & 0x3FFFF) >> 4);
  d |= static_cast<uint64_t>(1) << 16;
  d |= static_cast<uint64_t>(1024 >> 4) << 32;
  d |= static_cast<uint64_t>(1) << 62;
  return d;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define F4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(d, i) F4(d, (i)), F4(d, (i) + 4), F4(d, (i) + 8), F4(d, (i) + 12)
#define F64(d, i) F16(d, (i)), F16(d, (i) + 16), F16(d, (i) + 32), F16(d, (i) + 48)

__device__ __forceinline__ void wgmma_m64n256k16(float (&d)[128], uint64_t da, uint64_t db, int scale_d) {
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
      : F64(d, 0), F64(d, 64)
      : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}

__device__ __forceinline__ void stmatrix_x4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Which pair of M tiles and which N tile: groups of kGroupM pairs, N outside, pairs inside.
__device__ __forceinline__ void decode(int t, int m_pairs, int& mp, int& nt) {
  const int per_group = kGroupM * kNTiles;
  const int group = t / per_group;
  const int rem = t - group * per_group;
  const int here = min(kGroupM, m_pairs - group * kGroupM);
  mp = group * kGroupM + rem % here;
  nt = rem / here;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, int m_pairs) {
  extern __shared__ uint8_t smem_raw[];
  __shared__ alignas(8) uint64_t full[kStages];
  __shared__ alignas(8) uint64_t empty[kStages];
  uint8_t* smem = smem_raw + ((1024u - (smem_u32(smem_raw) & 1023u)) & 1023u);
  uint8_t* smem_out = smem + kStages * kStageBytes;

  cg::cluster_group cluster = cg::this_cluster();
  const uint32_t rank = cluster.block_rank();
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int wg = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_a) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_b) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map_c) : "memory");
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], 2 * 8);  // 8 consumer warps of each of the 2 CTAs
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();
  cluster.sync();

  const int n_clusters = gridDim.x / 2;
  const int cluster_id = blockIdx.x / 2;
  const int total = m_pairs * kNTiles;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      uint32_t it = 0;
      for (int t = cluster_id; t < total; t += n_clusters) {
        int mp, nt;
        decode(t, m_pairs, mp, nt);
        const int row_a = mp * (2 * kBM) + static_cast<int>(rank) * kBM;
        const int row_b = nt * kBN + static_cast<int>(rank) * (kBN / 2);
        for (int kb = 0; kb < kKBlocks; ++kb, ++it) {
          const uint32_t s = it % kStages;
          const uint32_t phase = (it / kStages) & 1;
          wait_parity(&empty[s], phase ^ 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s],
                                         static_cast<uint32_t>(kStageBytes));
          uint8_t* a = smem + s * kStageBytes;
          uint8_t* b = a + kABytes + rank * (kBBytes / 2);
          const int32_t ca[2] = {kb * kBK, row_a};
          const int32_t cb[2] = {kb * kBK, row_b};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, a, &map_a, ca, &full[s]);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, b, &map_b, cb, &full[s],
                                    static_cast<uint16_t>(3));
        }
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int cw = wg - 1;            // consumer warpgroup
    const int wg_warp = warp & 3;     // warp of the warpgroup
    const int wg_tid = threadIdx.x & 127;
    uint8_t* out = smem_out + cw * kOutBytes;
    const uint32_t out_addr = smem_u32(out);

    // Lanes 0 and 1 of each warp release a stage: one to each CTA of the cluster.
    uint64_t* empty_at = cluster.map_shared_rank(&empty[0], lane & 1);

    float acc[128];
    uint32_t it = 0;
    for (int t = cluster_id; t < total; t += n_clusters) {
      int mp, nt;
      decode(t, m_pairs, mp, nt);
#pragma unroll 1
      for (int kb = 0; kb < kKBlocks; ++kb, ++it) {
        const uint32_t s = it % kStages;
        wait_parity(&full[s], (it / kStages) & 1);
        const uint32_t a = smem_u32(smem + s * kStageBytes) + cw * (64 * 128);
        const uint32_t b = smem_u32(smem + s * kStageBytes + kABytes);
        const uint64_t da = make_desc(a);
        const uint64_t db = make_desc(b);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < kBK / 16; ++k) wgmma_m64n256k16(acc, da + 2 * k, db + 2 * k, (kb | k) != 0);
        wgmma_commit();
        if (kb > 0) {
          wgmma_wait<1>();  // the products of the stage before are done: it may be overwritten
          if (lane < 2)
            ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster,
                                 empty_at + (it - 1) % kStages);
        }
      }
      wgmma_wait<0>();
#pragma unroll
      for (int i = 0; i < 128; ++i) asm volatile("" : "+f"(acc[i])::"memory");
      if (lane < 2)
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, empty_at + (it - 1) % kStages);

      // Epilogue: twice 128 columns, each as two boxes of 64 columns by 64 rows with 128 byte swizzle.
      const int row0 = mp * (2 * kBM) + static_cast<int>(rank) * kBM + cw * 64;
      const int col0 = nt * kBN;
      const int st_row = wg_warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
      const int st_chunk = lane >> 4;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (wg_tid == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
        bar_sync(1 + cw, 128);
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const float* v = &acc[h * 64 + j * 8];
          const int chunk = ((j & 3) * 2 + st_chunk) ^ (st_row & 7);
          stmatrix_x4(out_addr + (j >> 2) * 8192 + st_row * 128 + chunk * 16, pack(v[0], v[1]), pack(v[2], v[3]),
                      pack(v[4], v[5]), pack(v[6], v[7]));
        }
        ptx::fence_proxy_async(ptx::space_shared);
        bar_sync(1 + cw, 128);
        if (wg_tid == 0) {
#pragma unroll
          for (int q = 0; q < 2; ++q) {
            const int32_t cc[2] = {col0 + h * 128 + q * 64, row0};
            ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map_c, cc, out + q * 8192);
          }
          ptx::cp_async_bulk_commit_group();
        }
      }
    }
    if (wg_tid == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
    __syncwarp();
  }
  // No CTA leaves while the other may still write or signal into its shared memory.
  cluster.sync();
}

void encode(CUtensorMap* map, void* base, uint64_t rows, uint64_t cols, uint32_t box_rows, uint32_t box_cols) {
  const cuuint64_t dims[2] = {cols, rows};
  const cuuint64_t strides[1] = {cols * 2};
  const cuuint32_t box[2] = {box_cols, box_rows};
  const cuuint32_t elem[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() != 2 || A.size(1) != kK || B.size(0) != kN || B.size(1) != kK)
    TVM_FFI_THROW(RuntimeError) << "unexpected shapes";
  const int64_t m = A.size(0);
  if (m == 0) return;
  if (m % (2 * kBM) != 0) TVM_FFI_THROW(RuntimeError) << "M must be a multiple of " << 2 * kBM;

  CUtensorMap map_a, map_b, map_c;
  encode(&map_a, A.data_ptr(), m, kK, kBM, kBK);
  encode(&map_b, B.data_ptr(), kN, kK, kBN / 2, kBK);
  encode(&map_c, C.data_ptr(), m, kN, 64, 64);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  int sms = 132;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id);
  const int m_pairs = static_cast<int>(m / (2 * kBM));
  int clusters = sms / 2;
  if (clusters > m_pairs * kNTiles) clusters = m_pairs * kNTiles;

  cudaError_t error = cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  gemm_kernel<<<2 * clusters, kThreads, kSmemBytes, stream>>>(map_a, map_b, map_c, m_pairs);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching gemm: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
