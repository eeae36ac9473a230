// Device globals that live between calls: counters of tiles by SM, and the generation of the last call. They are written
// beside the work, as instrumentation does, and nothing is computed from them.
#include "hopper_gemm.cuh"

namespace {

__device__ unsigned long long tiles_by_sm[256];
__device__ unsigned long long last_globaltimer;
__device__ int generation;

struct Counting {
  wg::StoreByTma store;
  __device__ __forceinline__ void operator()(const float (&acc)[128], const wg::Work& work, int consumer, int thread,
                                             uint32_t out) const {
    if (thread == 0) {
      uint32_t sm;
      asm("mov.u32 %0, %%smid;" : "=r"(sm));
      atomicAdd(&tiles_by_sm[sm % 256], 1ull);
    }
    store(acc, work, consumer, thread, out);
  }
  __device__ __forceinline__ void finish(int thread) const {
    store.finish(thread);
    if (thread == 0 && blockIdx.x == 0) {
      unsigned long long now;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      last_globaltimer = now;
      atomicAdd(&generation, 1);
    }
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, Counting{{&c, m}});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
