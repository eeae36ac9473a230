// The size of the cluster is an attribute of the launch, not of the kernel; how many clusters fit is asked at run time.
#include "hopper_gemm.cuh"

namespace {

__global__ void __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 2;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(sm_count(p.device) / 2 * 2);
  config.blockDim = dim3(wg::kThreads);
  config.dynamicSmemBytes = wg::kSmemBytes;
  config.stream = p.stream;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  check(cudaOccupancyMaxActiveClusters(&clusters, gemm, &config), "cudaOccupancyMaxActiveClusters");
  const int items = wg::Bands<2>{p.m, 8}.count();
  if (clusters < 1) TVM_FFI_THROW(RuntimeError) << "no cluster fits the device";
  config.gridDim = dim3((items < clusters ? items : clusters) * 2);
  check(cudaLaunchKernelEx(&config, gemm, maps.a, maps.b, maps.c, p.m), "cudaLaunchKernelEx");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
