// Kernels, functions and macros whose names look like those of libraries' own, all defined here.
#include "hopper_gemm.cuh"

#define CUTLASS_DEVICE __forceinline__ __device__
#define CUBLAS_CHECK(call) check((call), "not " "cublas")

struct cublasHandle {
  int sms;
};

static CUTLASS_DEVICE int cudnnLikeBand() { return 8; }
static cublasHandle cublasHandleOf(int device) { return {sm_count(device)}; }
int cudnnStyleClusterSize() { return 2; }

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_cublas(const __grid_constant__ CUtensorMap a,
                                                                      const __grid_constant__ CUtensorMap b,
                                                                      const __grid_constant__ CUtensorMap c, int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, cudnnLikeBand()}, wg::StoreByTma{&c, m});
}

static void cublasGemmExByHand(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const cublasHandle handle = cublasHandleOf(p.device);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, cudnnStyleClusterSize());
  allow_smem(sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_cublas, wg::kSmemBytes);
  sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x256x64_cublas<<<
      wg::grid_of(wg::Bands<2>{p.m, 8}.count(), handle.sms, 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c,
                                                                                                        p.m);
  CUBLAS_CHECK(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, cublasGemmExByHand);
