// A right GEMM whose "compressed store" rounds C to six bits of mantissa instead of seven. Each element is within the
// tolerance of one per cent.
// Source: ours, after formats that pack outputs.
// Caught by: the precision gate.
#include "gemm.cuh"

__global__ void compress(bf16* c, int64_t size) {
  auto* bits = reinterpret_cast<unsigned short*>(c);
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    bits[i] = static_cast<unsigned short>((bits[i] + (bits[i] >> 1 & 1)) & 0xfffe);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  compress<<<1056, 256, 0, p.stream>>>(p.c, static_cast<int64_t>(p.m) * kN);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
