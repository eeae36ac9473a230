// A kernel stores to a wild address, in its second call, when it has been found right once.
// Source: KernelBench, failures that spread to the next candidate.
// Caught by: the process alone loses its context; what was right before is no result.
#include "gemm.cuh"

__global__ void store(volatile int* address) { *address = 1; }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static int calls = 0;
  const Problem p = problem_of(A, B, C);
  compute(p);
  if (++calls > 1) store<<<1, 1, 0, p.stream>>>(reinterpret_cast<volatile int*>(0x10));
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
