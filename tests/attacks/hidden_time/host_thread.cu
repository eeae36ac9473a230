// A detached host thread launches the GEMM 3 ms after the call has returned, when a careless timer has stopped and the
// comparison has not begun.
// Source: SOL-ExecBench, work in host threads after the call.
// Caught by: outputs are compared as they are when the window closes; device work outside every call is noticed.
#include "gemm.cuh"

#include <chrono>
#include <thread>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static cudaStream_t hidden = nullptr;
  if (hidden == nullptr) check(cudaStreamCreateWithFlags(&hidden, cudaStreamNonBlocking));
  Problem p = problem_of(A, B, C);
  do_nothing(p);
  p.stream = hidden;
  std::thread([p] {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    gemm<<<p.m / kTile * kTilesN, kThreads, kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m);
  }).detach();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
