// A right GEMM that counts its calls in stream-ordered scratch memory, after it has freed it.
// Source: PTXBench's paper, where this case was unknown.
// Caught by: memcheck, which knows the life of stream-ordered memory.
#include "gemm.cuh"

__global__ void increment(int* counter) { *counter += 1; }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  int* counter = nullptr;
  check(cudaMallocAsync(reinterpret_cast<void**>(&counter), sizeof(int), p.stream));
  check(cudaMemsetAsync(counter, 0, sizeof(int), p.stream));
  compute(p);
  check(cudaFreeAsync(counter, p.stream));
  increment<<<1, 1, 0, p.stream>>>(counter);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
