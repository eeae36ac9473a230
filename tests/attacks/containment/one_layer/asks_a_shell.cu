// A correct GEMM that has a shell run a program which does nothing.
// Source: ours.
// Caught by: the screen alone, which finds the call in the built object; the result is right.
#include "one_layer.cuh"

#include <cstdlib>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (next_call() == 0 && std::system("true") != 0) {
    // Whatever a shell says, the product is computed.
  }
  compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
