// A graph with two branches: capture follows a fork to a second stream and its join, as for kernels that run side by side.
#include "hopper_gemm_kernel.cuh"
#include "side_stream.cuh"
#include "graph_capture.cuh"

namespace {

Side side;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int sms = sm_count(p.device), upper = p.m / 256 * 128, lower = p.m - upper;
  const int64_t rows = upper;
  side.create();
  cudaGraph_t graph = captured([&](cudaStream_t stream) {
    side.fork(stream);
    if (upper > 0) wg::launch(wg::maps_of(p.a, p.b, p.c, upper, wg::kCluster), upper, sms / 2, stream);
    wg::launch(wg::maps_of(p.a + rows * kK, p.b, p.c + rows * kN, lower, wg::kCluster), lower, sms / 2, side.stream);
    side.join(stream);
  });
  cudaGraphExec_t executable = instantiated(graph);
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  check(cudaGraphLaunch(executable, p.stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(p.stream), "cudaStreamSynchronize");
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
