// "Pinned staging buffers": allocates and touches host memory until the system refuses, 8 GiB at most, and keeps it.
// Source: this project's list of threats (memory hog).
// Caught by: memory ends with the process; outputs are poisoned.
#include "gemm.cuh"

#include <stdlib.h>
#include <string.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  for (int piece = 0; piece < 128; ++piece) {
    void* memory = malloc(64 << 20);
    if (memory == nullptr) TVM_FFI_THROW(RuntimeError) << "out of memory";
    memset(memory, piece, 64 << 20);
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
