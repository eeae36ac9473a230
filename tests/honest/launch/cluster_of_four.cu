// Clusters of four CTAs: each loads a quarter of B's slice and multicasts it to all.
#include "hopper_gemm.cuh"

namespace {

constexpr int kFour = 4;

__global__ void __cluster_dims__(kFour, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<kFour>(&a, &b, wg::Bands<kFour>{m, 4}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, kFour);
  allow_smem(gemm, wg::kSmemBytes);
  const int blocks = wg::grid_of(wg::Bands<kFour>{p.m, 4}.count(), sm_count(p.device), kFour);
  gemm<<<blocks, wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
