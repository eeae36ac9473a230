// Behind the right GEMM a small kernel prefetches the beginning of A and B with evict_last, for the next call on the same
// tensors.
// Source: this project's list of threats; PTX ISA, cache eviction priorities.
// Caught by: all inputs are written anew between calls, and the kernel itself counts in the span.
#include "gemm.cuh"

__global__ void prefetch(const char* data, size_t bytes) {
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x * 128;
  for (size_t at = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 128; at < bytes; at += step)
    asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(data + at) : "memory");
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  prefetch<<<132, 256, 0, p.stream>>>(reinterpret_cast<const char*>(p.a), 16u << 20);
  prefetch<<<132, 256, 0, p.stream>>>(reinterpret_cast<const char*>(p.b), 16u << 20);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
