// Captures in every call and updates the one executable graph with what was captured (cudaGraphExecUpdate).
#include "tile_gemm.cuh"
#include "graph_capture.cuh"

namespace {

cudaGraphExec_t executable = nullptr;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  cudaGraph_t graph = captured([&](cudaStream_t stream) {
    Gemm on_stream = p;
    on_stream.stream = stream;
    mma::launch(on_stream);
  });
  cudaGraphExecUpdateResultInfo result = {};
  if (executable != nullptr && cudaGraphExecUpdate(executable, graph, &result) != cudaSuccess) {
    cudaGetLastError();  // an update that is not possible is no error of the call
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    executable = nullptr;
  }
  if (executable == nullptr) executable = instantiated(graph);
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
