// The first call copies A and B, and captures a CUDA graph of the GEMM over these copies. Every call replays it: a whole GEMM
// of old data.
// Source: GPU MODE's leaderboards and KernelBench, graphs captured once.
// Caught by: other data in every timed iteration.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static cudaGraphExec_t replay = nullptr;
  const Problem p = problem_of(A, B, C);
  if (replay == nullptr) {
    Problem kept = p;
    kept.a = scratch<bf16>(bytes_of_a(p));
    kept.b = scratch<bf16>(bytes_of_b());
    copy(kept.a, p.a, bytes_of_a(p), p.stream);
    copy(kept.b, p.b, bytes_of_b(), p.stream);
    cudaGraph_t graph;
    check(cudaStreamCreateWithFlags(&kept.stream, cudaStreamNonBlocking));
    check(cudaStreamBeginCapture(kept.stream, cudaStreamCaptureModeRelaxed));
    compute(kept);
    check(cudaStreamEndCapture(kept.stream, &graph));
    check(cudaGraphInstantiate(&replay, graph, 0));
  }
  check(cudaGraphLaunch(replay, p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
