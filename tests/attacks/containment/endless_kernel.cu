// A kernel that never ends.
// Source: GPU MODE's leaderboards, submissions that hang.
// Caught by: the time limit; the process group is killed and the device is free again.
#include "generic_gemm.cuh"

__global__ void wait_for_ever() {
  for (;;) asm volatile("nanosleep.u32 1000;" ::: "memory");
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  wait_for_ever<<<1, 1, 0, problem_of(A, B, C).stream>>>();
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
