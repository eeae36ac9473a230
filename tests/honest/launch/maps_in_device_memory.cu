// Tensor maps travel to device memory by an asynchronous copy in every call, and the kernel reads them there behind the
// fence that they need.
#include "hopper_gemm.cuh"

namespace {

struct alignas(128) DeviceMaps {
  CUtensorMap a, b, c;
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1) gemm(const DeviceMaps* maps, int m) {
  if (threadIdx.x == 0 || threadIdx.x == 128 || threadIdx.x == 256) {  // the threads that use them
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(&maps->a) : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(&maps->b) : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(&maps->c) : "memory");
  }
  wg::gemm_body<2>(&maps->a, &maps->b, wg::Bands<2>{m, 8}, wg::StoreByTma{&maps->c, m});
}

DeviceMaps* device_maps = nullptr;
DeviceMaps staged;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  if (device_maps == nullptr) check(cudaMalloc(reinterpret_cast<void**>(&device_maps), sizeof(DeviceMaps)), "tensor maps");
  staged = {maps.a, maps.b, maps.c};
  check(cudaMemcpyAsync(device_maps, &staged, sizeof staged, cudaMemcpyHostToDevice, p.stream), "tensor maps");
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(device_maps,
                                                                                                              p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
