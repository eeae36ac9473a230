// Parameters reach the kernel through a __constant__ symbol that every call writes by cudaMemcpyToSymbolAsync.
#include "hopper_gemm.cuh"

namespace {

struct Parameters {
  int m, band;
  int64_t generation;
};

__constant__ Parameters parameters;
Parameters staged;
int64_t generation = 0;

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c) {
  const int m = parameters.m;
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, parameters.band}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  staged = {p.m, 8, ++generation};
  check(cudaMemcpyToSymbolAsync(parameters, &staged, sizeof staged, 0, cudaMemcpyHostToDevice, p.stream), "parameters");
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, maps.c);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
