// The "epilogue" brings C from pinned host memory, where the first call's result was staged "for the next layer"; the one
// kernel that runs adds a bias of zero to a single row.
// Source: ours.
// Caught by: other data in every timed iteration; copies count in the span.
#include "gemm.cuh"

__global__ void add_bias(bf16* c, float bias) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kN) c[i] = __float2bfloat16(__bfloat162float(c[i]) + bias);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static void* staged = nullptr;
  const Problem p = problem_of(A, B, C);
  if (staged == nullptr) {
    check(cudaMallocHost(&staged, bytes_of_c(p)));
    compute(p);
    check(cudaMemcpyAsync(staged, p.c, bytes_of_c(p), cudaMemcpyDeviceToHost, p.stream));
  } else {
    check(cudaMemcpyAsync(p.c, staged, bytes_of_c(p), cudaMemcpyHostToDevice, p.stream));
  }
  add_bias<<<(kN + 255) / 256, 256, 0, p.stream>>>(p.c, 0.0f);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
