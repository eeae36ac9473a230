// The GEMM runs on a stream of its own that the caller's stream never waits for; the call returns at once.
// Source: KernelBench and SOL-ExecBench, work hidden on another stream from events of the caller's.
// Caught by: the window closes when the whole device is idle, and the span holds all streams; the true time is charged.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static cudaStream_t hidden = nullptr;
  if (hidden == nullptr) check(cudaStreamCreateWithFlags(&hidden, cudaStreamNonBlocking));
  Problem p = problem_of(A, B, C);
  do_nothing(p);
  p.stream = hidden;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
