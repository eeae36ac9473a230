// cudaMalloc and cudaFree in every call: slow on the host and valid.
#include "hopper_gemm_kernel.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const size_t bytes = static_cast<size_t>(p.m) * kN * sizeof(bf16);
  bf16* scratch = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&scratch), bytes), "cudaMalloc");
  wg::launch(wg::maps_of(p.a, p.b, scratch, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream);
  check(cudaMemcpyAsync(p.c, scratch, bytes, cudaMemcpyDeviceToDevice, p.stream), "cudaMemcpyAsync");
  check(cudaStreamSynchronize(p.stream), "cudaStreamSynchronize");
  check(cudaFree(scratch), "cudaFree");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
