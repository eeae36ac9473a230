// A memory pool of our own that keeps what is freed, so that later calls get the same scratch at once.
#include "hopper_gemm_kernel.cuh"

namespace {

cudaMemPool_t pool = nullptr;

cudaMemPool_t own_pool(int device) {
  if (pool == nullptr) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.handleTypes = cudaMemHandleTypeNone;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    check(cudaMemPoolCreate(&pool, &properties), "cudaMemPoolCreate");
    uint64_t keep = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep), "release threshold");
  }
  return pool;
}

// Packs B into memory of the pool and multiplies by the copy.
void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const size_t bytes = static_cast<size_t>(kN) * kK * sizeof(bf16);
  bf16* copy = nullptr;
  check(cudaMallocFromPoolAsync(reinterpret_cast<void**>(&copy), bytes, own_pool(p.device), p.stream), "cudaMallocFromPoolAsync");
  check(cudaMemcpyAsync(copy, p.b, bytes, cudaMemcpyDeviceToDevice, p.stream), "cudaMemcpyAsync");
  wg::launch(wg::maps_of(p.a, copy, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream);
  check(cudaFreeAsync(copy, p.stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
