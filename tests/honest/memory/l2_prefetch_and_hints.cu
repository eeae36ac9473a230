// A helper kernel asks for the head of B in L2 before the product starts, within the call; results bypass L1 with a cache
// hint. Nothing stays warm for the next call: the helper runs each time.
#include "hopper_gemm.cuh"

namespace {

constexpr int64_t kPrefetched = 16ll << 20;  // bytes

__global__ void prefetch(const char* b) {
  const int64_t line = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 128;
  if (line < kPrefetched) asm volatile("prefetch.global.L2 [%0];" ::"l"(b + line));
}

struct Streaming {
  bf16* c;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high, const wg::Work&) const {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("st.global.L2::cache_hint.b32 [%0], %1, %2;" ::"l"(c + static_cast<int64_t>(row) * kN + col),
                 "r"(pack_bf16(low, high)), "l"(policy)
                 : "memory");
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, bf16* c, int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByElement<Streaming>{{c}, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  prefetch<<<kPrefetched / 128 / 256, 256, 0, p.stream>>>(reinterpret_cast<const char*>(p.b));
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, p.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
