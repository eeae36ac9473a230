// A graph of one kernel node, built by hand once; every call sets the node's parameters anew and launches it.
#include "tile_gemm.cuh"
#include "graph_capture.cuh"

namespace {

cudaGraph_t graph = nullptr;
cudaGraphNode_t node;
cudaGraphExec_t executable = nullptr;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const bf16 *a = p.a, *b = p.b;
  bf16* c = p.c;
  int m = p.m;
  void* arguments[] = {&a, &b, &c, &m};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(mma::gemm_kernel);
  parameters.gridDim = dim3(p.m / mma::kTile * mma::kTilesN);
  parameters.blockDim = dim3(mma::kThreads);
  parameters.sharedMemBytes = mma::kSmemBytes;
  parameters.kernelParams = arguments;
  if (executable == nullptr) {
    allow_smem(mma::gemm_kernel, mma::kSmemBytes);
    check(cudaGraphCreate(&graph, 0), "cudaGraphCreate");
    check(cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters), "cudaGraphAddKernelNode");
    executable = instantiated(graph);
  } else {
    check(cudaGraphExecKernelNodeSetParams(executable, node, &parameters), "cudaGraphExecKernelNodeSetParams");
  }
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
