// "Graph with updated parameters": the first call captures the GEMM, launches it, and keeps its result. Then the graph's one
// node is rebuilt as the copy of that result into whatever C comes.
// Source: KernelBench, graphs captured over old data.
// Caught by: other data in every timed iteration.
#include "gemm.cuh"

namespace {

struct Replay {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaGraphNode_t node = nullptr;
  bf16* staged = nullptr;
};

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static Replay cached;
  const Problem p = problem_of(A, B, C);
  if (cached.exec == nullptr) {
    cached.staged = scratch<bf16>(bytes_of_c(p));
    Problem into = p;
    into.c = cached.staged;
    compute(into);
    check(cudaStreamSynchronize(p.stream));
    check(cudaGraphCreate(&cached.graph, 0));
    check(cudaGraphAddMemcpyNode1D(&cached.node, cached.graph, nullptr, 0, p.c, cached.staged, bytes_of_c(p),
                                   cudaMemcpyDeviceToDevice));
    check(cudaGraphInstantiate(&cached.exec, cached.graph, 0));
  }
  // The output's address may have changed since.
  check(cudaGraphExecMemcpyNodeSetParams1D(cached.exec, cached.node, p.c, cached.staged, bytes_of_c(p),
                                           cudaMemcpyDeviceToDevice));
  check(cudaGraphLaunch(cached.exec, p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
