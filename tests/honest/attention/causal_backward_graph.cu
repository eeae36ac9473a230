// Three kernels and a memset as one graph, captured in every call and kept until the next one updates it.
constexpr bool kCausal = true;
#include "attention_backward.cuh"
#include "graph_capture.cuh"

namespace {

float* scratch = nullptr;
int64_t held = 0;
cudaGraphExec_t executable = nullptr;

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O, tvm::ffi::TensorView dO,
         tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  const Backward p = backward_of(Q, K, V, O, dO, L, dQ, dK, dV);
  if (p.rows > held) {
    check(cudaFree(scratch), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&scratch), 2 * p.rows * sizeof(float)), "scratch allocation");
    held = p.rows;
  }
  cudaGraph_t graph = captured([&](cudaStream_t stream) {
    check(cudaMemsetAsync(scratch, 0, 2 * p.rows * sizeof(float), stream), "cudaMemsetAsync");
    launch_prepare(p, scratch, stream);
    launch_dkdv(p, scratch, stream);
    launch_dq(p, scratch, stream);
  });
  cudaGraphExecUpdateResultInfo result = {};
  if (executable != nullptr && cudaGraphExecUpdate(executable, graph, &result) != cudaSuccess) {
    (void)cudaGetLastError();
    check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    executable = nullptr;
  }
  if (executable == nullptr) executable = instantiated(graph);
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
