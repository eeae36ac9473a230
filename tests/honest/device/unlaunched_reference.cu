// A naive reference kernel and a comparison of it stay in the file for debugging; no call launches them.
#include "hopper_gemm_kernel.cuh"

namespace {

__global__ void naive_reference(const bf16* a, const bf16* b, bf16* c, int m) {
  const int col = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  float sum = 0.f;
  for (int k = 0; k < kK; ++k)
    sum += __bfloat162float(a[static_cast<int64_t>(row) * kK + k]) * __bfloat162float(b[static_cast<int64_t>(col) * kK + k]);
  c[static_cast<int64_t>(row) * kN + col] = __float2bfloat16(sum);
}

__global__ void count_mismatches(const bf16* expected, const bf16* actual, int64_t count, unsigned long long* mismatches) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count && fabsf(__bfloat162float(expected[i]) - __bfloat162float(actual[i])) > 1e-2f) atomicAdd(mismatches, 1ull);
}

constexpr bool kDebug = false;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(p);
  if (kDebug) {
    bf16* expected = nullptr;
    unsigned long long* mismatches = nullptr;
    const int64_t count = static_cast<int64_t>(p.m) * kN;
    check(cudaMallocManaged(&expected, count * 2), "debug");
    check(cudaMallocManaged(&mismatches, 8), "debug");
    naive_reference<<<dim3(kN / 16, p.m / 16), dim3(16, 16), 0, p.stream>>>(p.a, p.b, expected, p.m);
    count_mismatches<<<static_cast<int>(count / 256), 256, 0, p.stream>>>(expected, p.c, count, mismatches);
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
