// A graph captured for the first set of pointers and launched again while they stay; with other pointers it is captured
// anew. Its kernel reads the data of the call.
constexpr bool kCausal = false;
#include "attention_forward.cuh"
#include "graph_capture.cuh"

namespace {

Forward cached = {};
cudaGraphExec_t executable = nullptr;

bool same(const Forward& x, const Forward& y) {
  return x.q == y.q && x.k == y.k && x.v == y.v && x.o == y.o && x.lse == y.lse && x.heads == y.heads && x.seq == y.seq;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const Forward p = forward_of(Q, K, V, O, LSE);
  if (executable == nullptr || !same(p, cached)) {
    if (executable != nullptr) check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
    const ForwardMaps maps = maps_of(p);
    cudaGraph_t graph = captured([&](cudaStream_t stream) { launch(p, maps, stream); });
    executable = instantiated(graph);
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    cached = p;
  }
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
