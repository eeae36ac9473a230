// Leaves with status 0 in the middle of a call, as if all were done.
// Source: KernelBench and GPU MODE, harnesses that read exit statuses.
// Caught by: a process that ends during a call has failed, whatever its status.
#include "gemm.cuh"

#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  check(cudaStreamSynchronize(p.stream));
  _exit(0);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
