// Streams and events that live for one call: made, used, waited for by the host and destroyed.
#include "hopper_gemm_kernel.cuh"
#include "side_stream.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  Side temporary;
  temporary.create();
  temporary.fork(p.stream);
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), temporary.stream);
  temporary.join(p.stream);
  check(cudaStreamSynchronize(temporary.stream), "cudaStreamSynchronize");
  temporary.destroy();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
