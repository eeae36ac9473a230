// Launches its own kernel through the driver's API: the runtime gives the handle, cuLaunchKernelEx launches it.
#include "hopper_gemm.cuh"

namespace {

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void expect(CUresult result, const char* what) {
  const char* name = nullptr;
  if (result != CUDA_SUCCESS) {
    cuGetErrorName(result, &name);
    TVM_FFI_THROW(RuntimeError) << what << ": " << (name ? name : "unknown error");
  }
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  int m = p.m;
  cudaFunction_t function = nullptr;
  check(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(gemm)), "cudaGetFuncBySymbol");
  expect(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wg::kSmemBytes), "cuFuncSetAttribute");
  CUlaunchConfig config = {};
  config.gridDimX = wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2);
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = wg::kThreads;
  config.sharedMemBytes = wg::kSmemBytes;
  config.hStream = p.stream;
  void* arguments[] = {&maps.a, &maps.b, &maps.c, &m};
  expect(cuLaunchKernelEx(&config, function, arguments, nullptr), "cuLaunchKernelEx");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
