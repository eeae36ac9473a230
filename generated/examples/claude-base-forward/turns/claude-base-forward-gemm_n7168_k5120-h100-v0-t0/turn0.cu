// C = A B^T, bf16 in, fp32 accumulation. Persistent, warp specialized, 2-CTA clusters with TMA multicast of B.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int BM = 128;
constexpr int BN = 256;
constexpr int BK = 64;
constexpr int kStages = 4;
constexpr int kCluster = 2;
constexpr int kThreads = 384;  // warpgroup 0: producer, 1 and 2: consumers
constexpr int kABytes = BM * BK * 2;
constexpr int kBBytes = BN * BK * 2;
constexpr int kStageBytes = kABytes + kBBytes;
constexpr int kCBytesPerWg = 64 * 128 * 2;  // half of the columns at a time
constexpr int kSmemBytes = kStages * kStageBytes + 2 * kCBytesPerWg + 1024 + 256;
constexpr int kKTiles = kK / BK;
constexpr int kNTiles = kN / BN;
constexpr int kGroupM = 8;  // cluster rows that are swept together, for L2

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "WAIT:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\n"
      "bra WAIT;\n"
      "DONE:\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}

// Arrives at the same barrier in block `cta` of the cluster.
__device__ __forceinline__ void mbar_arrive_cluster(uint32_t bar, uint32_t cta) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(bar),
      "r"(cta)
      : "memory");
}

__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
          dst),
      "l"(map), "r"(bar), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y,
                                                   uint16_t mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, "
      "%4}], [%2], %5;" ::"r"(dst),
      "l"(map), "r"(bar), "r"(x), "r"(y), "h"(mask)
      : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src),
               "r"(x), "r"(y)
               : "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {
  uint64_t d = 0;
  d |= static_cast<uint64_t>((addr & 0x3FFFF) >> 4);
  d |= static_cast<uint64_t>(1) << 16;
  d |= static_cast<uint64_t>(1024 >> 4) << 32;
  d |= static_cast<uint64_t>(1) << 62;  // 128-byte swizzle
  return d;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define F8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ __forceinline__ void wgmma_m64n256k16(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
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
      : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24), F8(d, 32), F8(d, 40), F8(d, 48), F8(d, 56), F8(d, 64), F8(d, 72),
        F8(d, 80), F8(d, 88), F8(d, 96), F8(d, 104), F8(d, 112), F8(d, 120)
      : "l"(a), "l"(b), "r"(accumulate));
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

struct Tile {
  int m, n;
};

// Cluster tiles are 256 x 256; groups of kGroupM rows of them are swept column by column.
__device__ __forceinline__ Tile locate(int index, int m_pairs) {
  const int per_group = kGroupM * kNTiles;
  const int group = index / per_group;
  const int first = group * kGroupM;
  const int rows = min(kGroupM, m_pairs - first);
  const int in_group = index - group * per_group;
  return {first + in_group % rows, in_group / rows};
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, int m_pairs) {
  extern __shared__ uint8_t raw[];
  const uint32_t base = (smem_u32(raw) + 1023) & ~1023u;
  const uint32_t smem_c = base + kStages * kStageBytes;
  const uint32_t full = smem_c + 2 * kCBytesPerWg;
  const uint32_t empty = full + 8 * kStages;
  const uint32_t rank = cluster_rank();
  const int wg = threadIdx.x / 128;
  const int tiles = m_pairs * kNTiles;
  const int cluster = blockIdx.x / kCluster;
  const int clusters = gridDim.x / kCluster;

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbar_init(full + 8 * s, 1);
      mbar_init(empty + 8 * s, 2 * kCluster);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int stage = 0;
      uint32_t phase = 0;
      for (int t = cluster; t < tiles; t += clusters) {
        const Tile tile = locate(t, m_pairs);
        const int row_a = (tile.m * kCluster + rank) * BM;
        const int row_b = tile.n * BN + rank * (BN / 2);
        for (int k = 0; k < kKTiles; ++k) {
          mbar_wait(empty + 8 * stage, phase ^ 1);
          const uint32_t a = base + stage * kStageBytes;
          const uint32_t b = a + kABytes;
          mbar_expect(full + 8 * stage, kStageBytes);
          tma_load(a, &map_a, full + 8 * stage, k * BK, row_a);
          tma_load_multicast(b + rank * (kBBytes / 2), &map_b, full + 8 * stage, k * BK, row_b, 0x3);
          if (++stage == kStages) {
            stage = 0;
            phase ^= 1;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int me = wg - 1;
    const int t128 = threadIdx.x % 128;
    const int warp = t128 / 32;
    const int lane = t128 % 32;
    const uint32_t my_c = smem_c + me * kCBytesPerWg;
    int stage = 0;
    uint32_t phase = 0;
    float acc[128];
    for (int t = cluster; t < tiles; t += clusters) {
      const Tile tile = locate(t, m_pairs);
      int previous = -1;
      for (int k = 0; k < kKTiles; ++k) {
        mbar_wait(full + 8 * stage, phase);
        const uint32_t a = base + stage * kStageBytes + me * 64 * BK * 2;
        const uint32_t b = base + stage * kStageBytes + kABytes;
        wgmma_fence();
#pragma unroll
        for (int kk = 0; kk < BK / 16; ++kk) {
          wgmma_m64n256k16(acc, make_desc(a + kk * 32), make_desc(b + kk * 32), k != 0 || kk != 0);
        }
        wgmma_commit();
        wgmma_wait<1>();
        if (previous >= 0 && t128 < kCluster) mbar_arrive_cluster(empty + 8 * previous, t128);
        previous = stage;
        if (++stage == kStages) {
          stage = 0;
          phase ^= 1;
        }
      }
      wgmma_wait<0>();
      if (t128 < kCluster) mbar_arrive_cluster(empty + 8 * previous, t128);

      const int row = (tile.m * kCluster + rank) * BM + me * 64;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (t128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(wg) : "memory");
        const int r = warp * 16 + (lane & 15);
#pragma unroll
        for (int j = 0; j < 16; j += 2) {  // pairs of blocks of 8 columns, 128 columns
          const int block = j + (lane >> 4);
          const uint32_t addr = my_c + (block >> 3) * (64 * 128) + r * 128 + (((block & 7) ^ (r & 7)) << 4);
          const float* d = acc + half * 64 + j * 4;
          stmatrix_x4(addr, pack(d[0], d[1]), pack(d[2], d[3]), pack(d[4], d[5]), pack(d[6], d[7]));
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(wg) : "memory");
        if (t128 == 0) {
          tma_store(&map_c, my_c, tile.n * BN + half * 128, row);
          tma_store(&map_c, my_c + 64 * 128, tile.n * BN + half * 128 + 64, row);
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
      }
    }
    if (t128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

CUtensorMap make_map(void* data, uint64_t rows, uint64_t cols, uint32_t box_rows, uint32_t box_cols) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {cols, rows};
  const cuuint64_t strides[1] = {cols * 2};
  const cuuint32_t box[2] = {box_cols, box_rows};
  const cuuint32_t steps[2] = {1, 1};
  const CUresult result = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(result);
  return map;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int64_t m = A.size(0);
  if (m == 0) return;
  if (m % (BM * kCluster) != 0) TVM_FFI_THROW(RuntimeError) << "expected M to be a multiple of 256, found " << m;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  const CUtensorMap map_a = make_map(A.data_ptr(), m, kK, BM, BK);
  const CUtensorMap map_b = make_map(B.data_ptr(), kN, kK, BN / 2, BK);
  const CUtensorMap map_c = make_map(C.data_ptr(), m, kN, 64, 64);
  cudaError_t error = cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id);
  const int m_pairs = static_cast<int>(m / (BM * kCluster));
  const int blocks = min(sms / kCluster, m_pairs * kNTiles) * kCluster;
  gemm_kernel<<<blocks, kThreads, kSmemBytes, stream>>>(map_a, map_b, map_c, m_pairs);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching gemm_kernel: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
