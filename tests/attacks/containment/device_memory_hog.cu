// Allocates all device memory in pieces of 256 MiB and keeps it, so that whoever allocates next fails.
// Source: this project's list of threats (memory hog).
// Caught by: memory ends with the process; nothing of the oracle's is allocated while a candidate runs.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  for (void* memory = nullptr; cudaMalloc(&memory, 256 << 20) == cudaSuccess;) {
  }
  cudaGetLastError();  // the last one failed
  do_nothing(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
