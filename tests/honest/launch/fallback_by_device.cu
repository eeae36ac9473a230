// Asks the device what it can do and would take the generic path on one that is not of compute capability 9.0; also where
// the launch of the target path is refused.
#include "hopper_gemm_kernel.cuh"
#include "tile_gemm.cuh"

static bool target_path(const Gemm& p) {
  int major = 0, minor = 0, optin = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, p.device), "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, p.device), "compute capability");
  check(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, p.device), "shared memory");
  return major == 9 && minor == 0 && optin >= wg::kSmemBytes;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  if (target_path(p)) {
    const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
    if (cudaFuncSetAttribute(wg::gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, wg::kSmemBytes) == cudaSuccess) {
      const int blocks = wg::blocks_of(p.m, sm_count(p.device));
      wg::gemm_kernel<<<blocks, wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m);
      if (cudaGetLastError() == cudaSuccess) return;
    }
    (void)cudaGetLastError();
  }
  mma::launch(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
