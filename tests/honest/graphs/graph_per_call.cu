// Captures a graph in every call, instantiates, launches and destroys it.
#include "hopper_gemm_kernel.cuh"
#include "graph_capture.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
  const int sms = sm_count(p.device);
  cudaGraph_t graph = captured([&](cudaStream_t stream) { wg::launch(maps, p.m, sms, stream); });
  cudaGraphExec_t executable = instantiated(graph);
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");  // the runtime frees it once the launch has ended
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
