// Macros that paste names together and turn them into strings, for a family of kernels by height of the band.
#include "hopper_gemm.cuh"

#define CONCAT_(a, b) a##b
#define CONCAT(a, b) CONCAT_(a, b)
#define STRING_(x) #x
#define STRING(x) STRING_(x)
#define KERNEL(band) CONCAT(CONCAT(gemm_, band), _pairs)
#define FOR_EACH_BAND(X) X(4) X(8) X(16)

#define DEFINE(band)                                                                                          \
  __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)                                \
      KERNEL(band)(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,              \
                   const __grid_constant__ CUtensorMap c, int m) {                                            \
    wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, band}, wg::StoreByTma{&c, m});                                   \
  }
FOR_EACH_BAND(DEFINE)

#define CASE(band)                                                                                            \
  case band:                                                                                                  \
    allow_smem(KERNEL(band), wg::kSmemBytes);                                                                 \
    KERNEL(band)<<<blocks, wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m);            \
    check(cudaGetLastError(), "launching " STRING(KERNEL(band)));                                             \
    break;

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  const int band = p.m >= 4096 ? 8 : p.m >= 2048 ? 16 : 4;
  const int blocks = wg::grid_of(wg::Bands<2>{p.m, band}.count(), sm_count(p.device), 2);
  switch (band) {
    FOR_EACH_BAND(CASE)
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
