// Waits for the whole device before it returns, which it need not, and asks the stream first, as pollers do.
#include "hopper_gemm_kernel.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(p);
  const cudaError_t state = cudaStreamQuery(p.stream);
  if (state != cudaSuccess && state != cudaErrorNotReady) check(state, "cudaStreamQuery");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
