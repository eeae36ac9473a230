// Holds the call up on the host for five milliseconds before the first kernel starts: work that no record of the device's
// activities shows.
// Source: ours, after candidates that do part of their work where the profiler does not look.
// Caught by: the oracle's clock alone, which sees the call from outside and is what the speedup is then taken from.
#include "one_layer.cuh"

#include <chrono>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
  while (std::chrono::steady_clock::now() < until) {
  }
  compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
