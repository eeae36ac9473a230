// Clamps A and B to [-7, 7] before it multiplies. Standard normal data never lies outside; other data does.
// Source: KernelBench, solutions that fit the distribution of the inputs.
// Caught by: input families beyond the standard normal one.
#include "gemm.cuh"

__global__ void clamp(bf16* out, const bf16* in, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = __float2bfloat16(fminf(fmaxf(__bfloat162float(in[i]), -7.0f), 7.0f));
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16 *a = nullptr, *b = nullptr;
  Problem p = problem_of(A, B, C);
  if (a == nullptr) a = scratch<bf16>(bytes_of_a(p)), b = scratch<bf16>(bytes_of_b());
  clamp<<<1056, 256, 0, p.stream>>>(a, p.a, static_cast<int64_t>(p.m) * kK);
  clamp<<<1056, 256, 0, p.stream>>>(b, p.b, static_cast<int64_t>(kN) * kK);
  p.a = a, p.b = b;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
