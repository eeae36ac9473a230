// C = A B^T: 256x128x64 tiles, clusters of two along M with multicast of B, libcu++ PTX wrappers.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ptx = cuda::ptx;

namespace {

constexpr int kN = 7168, kK = 5120;
constexpr int TILE_M = 256, TILE_N = 128, TILE_K = 64;
constexpr int STAGES = 4;
constexpr int THREADS = 384;
constexpr uint32_t A_BYTES = TILE_M * TILE_K * 2;
constexpr uint32_t B_BYTES = TILE_N * TILE_K * 2;

struct Shared {
  alignas(1024) __nv_bfloat16 a[STAGES][TILE_M * TILE_K];
  alignas(1024) __nv_bfloat16 b[STAGES][TILE_N * TILE_K];
  alignas(1024) __nv_bfloat16 c[2][64 * 128];
  alignas(8) uint64_t full[STAGES];
  alignas(8) uint64_t empty[STAGES];
};

__device__ __forceinline__ uint64_t smem_descriptor(const void* p) {
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t{1} << 16) | (uint64_t{64} << 32) | (uint64_t{1} << 62);
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity)) {
  }
}

// The address of `bar` in block `cta` of the cluster.
__device__ __forceinline__ uint64_t* remote_barrier(uint64_t* bar, uint32_t cta) {
  uint64_t* remote;
  asm("mapa.u64 %0, %1, %2;" : "=l"(remote) : "l"(bar), "r"(cta));
  return remote;
}

template <int R>
struct Accumulator {
  float v[R];
};

#define X8(f, i) f(i) f(i + 1) f(i + 2) f(i + 3) f(i + 4) f(i + 5) f(i + 6) f(i + 7)

__device__ __forceinline__ void mma(float (&d)[64], uint64_t a, uint64_t b, bool accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)));
}

struct Coordinates {
  int m, n;
};
__device__ __forceinline__ Coordinates tile_of(int i, int m_tiles) {
  constexpr int kGroup = 8;
  constexpr int kNTiles = kN / TILE_N;
  const int g = i / (kGroup * kNTiles);
  const int rows = min(kGroup, m_tiles - g * kGroup);
  const int r = i % (kGroup * kNTiles);
  return {g * kGroup + r % rows, r / rows};
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(THREADS, 1)
    gemm(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
         const __grid_constant__ CUtensorMap tc, int m_pairs) {
  extern __shared__ __align__(1024) unsigned char storage[];
  Shared& sm = *reinterpret_cast<Shared*>(storage);
  const uint32_t rank = ptx::get_sreg_cluster_ctarank();
  const int wg = threadIdx.x / 128;
  const int tid = threadIdx.x % 128;
  const int items = m_pairs * (kN / TILE_N);
  const int first = ptx::get_sreg_clusterid_x();
  const int step = ptx::get_sreg_nclusterid_x();

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      ptx::mbarrier_init(&sm.full[s], 1);
      ptx::mbarrier_init(&sm.empty[s], 4);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();

  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (tid == 0) {
      uint32_t k_iter = 0;
      for (int i = first; i < items; i += step) {
        const Coordinates t = tile_of(i, m_pairs);
        for (int k = 0; k < kK / TILE_K; ++k, ++k_iter) {
          const uint32_t s = k_iter % STAGES;
          wait(&sm.empty[s], ((k_iter / STAGES) & 1) ^ 1);
          ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.full[s],
                                         A_BYTES + B_BYTES);
          const int32_t at_a[2] = {k * TILE_K, (t.m * 2 + static_cast<int>(rank)) * TILE_M};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.a[s], &ta, at_a, &sm.full[s]);
          const int32_t at_b[2] = {k * TILE_K, t.n * TILE_N + static_cast<int>(rank) * (TILE_N / 2)};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.b[s] + rank * (TILE_N / 2) * TILE_K, &tb,
                                    at_b, &sm.full[s], uint16_t{3});
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float acc[2][64];
    uint32_t k_iter = 0;
    const auto release = [&](uint32_t s) {
      if (tid < 2) {
        uint64_t* remote = remote_barrier(&sm.empty[s], static_cast<uint32_t>(tid));
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, remote);
      }
    };
    for (int i = first; i < items; i += step) {
      const Coordinates t = tile_of(i, m_pairs);
      for (int k = 0; k < kK / TILE_K; ++k, ++k_iter) {
        const uint32_t s = k_iter % STAGES;
        wait(&sm.full[s], (k_iter / STAGES) & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int kk = 0; kk < 4; ++kk) {
          const uint64_t db = smem_descriptor(sm.b[s] + kk * 16);
          mma(acc[0], smem_descriptor(sm.a[s] + wg * 128 * TILE_K + kk * 16), db, k + kk > 0);
          mma(acc[1], smem_descriptor(sm.a[s] + (wg * 128 + 64) * TILE_K + kk * 16), db, k + kk > 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (k > 0) release((k_iter - 1) % STAGES);
      }
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      release((k_iter - 1) % STAGES);

      const int lane = tid % 32;
      const int row = (tid / 32) * 16 + lane % 16;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (tid == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
        asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
#pragma unroll
        for (int j = 0; j < 16; j += 2) {
          uint32_t w[4];
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const __nv_bfloat162 v = __floats2bfloat162_rn(acc[h][4 * j + 2 * e], acc[h][4 * j + 2 * e + 1]);
            w[e] = *reinterpret_cast<const uint32_t*>(&v);
          }
          const int chunk = j + lane / 16;
          const uint32_t to = __cvta_generic_to_shared(sm.c[wg]) + (chunk / 8) * 8192 + row * 128 +
                              ((chunk % 8) ^ (row % 8)) * 16;
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]),
                       "r"(w[1]), "r"(w[2]), "r"(w[3])
                       : "memory");
        }
        ptx::fence_proxy_async(ptx::space_shared);
        asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
        if (tid == 0) {
          const int m = (t.m * 2 + static_cast<int>(rank)) * TILE_M + wg * 128 + h * 64;
          const int32_t left[2] = {t.n * TILE_N, m};
          const int32_t right[2] = {t.n * TILE_N + 64, m};
          ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &tc, left, sm.c[wg]);
          ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &tc, right, sm.c[wg] + 64 * 64);
          ptx::cp_async_bulk_commit_group();
        }
      }
    }
    if (tid == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>{});
  }
  ptx::barrier_cluster_arrive();
  ptx::barrier_cluster_wait();
}

CUtensorMap encode(const tvm::ffi::TensorView& t, uint64_t rows, uint64_t cols, uint32_t box_rows) {
  CUtensorMap map;
  const cuuint64_t size[] = {cols, rows};
  const cuuint64_t stride[] = {cols * 2};
  const cuuint32_t box[] = {64, box_rows};
  const cuuint32_t one[] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t.data_ptr(), size, stride, box,
                                            one, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
  return map;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int64_t m = A.size(0);
  if (m == 0) return;
  if (m % TILE_M) TVM_FFI_THROW(RuntimeError) << "M must be a multiple of 256, found " << m;
  const CUtensorMap ta = encode(A, m, kK, TILE_M);
  const CUtensorMap tb = encode(B, kN, kK, TILE_N / 2);
  const CUtensorMap tc = encode(C, m, kN, 64);
  cudaError_t e = cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const int m_pairs = static_cast<int>((m + 2 * TILE_M - 1) / (2 * TILE_M));  // rows behind the end are clipped
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  gemm<<<132, THREADS, sizeof(Shared), stream>>>(ta, tb, tc, m_pairs);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "gemm: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
