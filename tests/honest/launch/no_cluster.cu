// The same body without clusters and with one block a tile instead of a persistent grid.
#include "hopper_gemm.cuh"

namespace {

__global__ void __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<1>(&a, &b, wg::Bands<1>{m, 16}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 1);
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::Bands<1>{p.m, 16}.count(), wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
