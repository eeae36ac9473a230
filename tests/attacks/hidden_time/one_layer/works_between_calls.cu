// A correct GEMM, beside which a thread of the host starts small kernels all the time, between the calls as well: where
// that is allowed, work of a call can be moved out of it.
// Source: ours, after candidates that go on working when a call has returned.
// Caught by: stray activity alone; C is right and every call is timed truly.
#include "one_layer.cuh"

#include <chrono>
#include <thread>

__global__ void touch() {}

inline bool start() {
  std::thread([] {
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return;
    for (;;) {
      touch<<<1, 1, 0, stream>>>();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }).detach();
  return true;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const bool started = start();
  if (started) compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
