// What a generator of code leaves behind: #line directives that name its template, pragmas, predefined macros, a version
// string that names libraries.
#include "hopper_gemm.cuh"

#line 1 "gemm_template.cu.j2"
#pragma nv_diag_suppress 177
#pragma GCC diagnostic ignored "-Wunused-variable"
static_assert(__LINE__ < 1000, "the directive counts");

__attribute__((used)) static const char kVersion[] = "@(#) built " __DATE__ " by codegen 1.2 against libcublas.so.13, libcudnn.so.9";

#line 40 "kernels/band_8.cu.j2"
_Pragma("nv_diag_suppress 550") __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm__band_8__cluster_2(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                            const __grid_constant__ CUtensorMap c, int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

#line 7 "host.cu.j2"
static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm__band_8__cluster_2, wg::kSmemBytes);
  gemm__band_8__cluster_2<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes,
                            p.stream>>>(maps.a, maps.b, maps.c, p.m);
  if (const cudaError_t error = cudaGetLastError())
    TVM_FFI_THROW(RuntimeError) << __FILE__ << ":" << __LINE__ << " in " << __func__ << " (" << kVersion
                                << "): " << cudaGetErrorString(error);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
