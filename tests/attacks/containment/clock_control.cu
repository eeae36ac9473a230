// Runs the tool that sets clocks, only to ask for them here.
// Source: this project's list of threats; GPU MODE, locked clocks.
// Caught by: functions that start processes.
#include "generic_gemm.cuh"

#include <stdlib.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  problem_of(A, B, C);
  if (system("nvidia-smi --query-gpu=clocks.sm --format=csv,noheader > /dev/null") != 0) return;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
