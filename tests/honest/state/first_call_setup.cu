// The first call does more than the others: it asks for the device's properties and allows shared memory, once.
#include "hopper_gemm_kernel.cuh"
#include <mutex>

namespace {

struct Device {
  int sms = 0;
  int l2_bytes = 0;
  int clusters = 0;
};

Device device;
std::once_flag first_call;

void setup(int id) {
  device.sms = sm_count(id);
  check(cudaDeviceGetAttribute(&device.l2_bytes, cudaDevAttrL2CacheSize, id), "L2 size");
  check(cudaDeviceGetAttribute(&device.clusters, cudaDevAttrClusterLaunch, id), "cluster launch");
  allow_smem(wg::gemm_kernel, wg::kSmemBytes);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  std::call_once(first_call, setup, p.device);
  if (!device.clusters) TVM_FFI_THROW(RuntimeError) << "this device has no clusters";
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
  const int blocks = wg::blocks_of(p.m, device.sms);
  wg::gemm_kernel<<<blocks, wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
