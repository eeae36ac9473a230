// Before the first call, in a static initializer, it makes the inputs of a harness with a known seed and multiplies them.
// Calls copy the product. The generator here stands for that of the harness.
// Source: KernelBench, fixed seeds of input generators.
// Caught by: inputs come from secret random keys, new ones in every call.
#include "gemm.cuh"

__global__ void generate(bf16* data, int64_t size, unsigned seed) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    unsigned long long x = (i + 1) * 0x9e3779b97f4a7c15ull + seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x ^= x >> 31;
    const float u = (static_cast<float>(x >> 40) + 0.5f) * 0x1p-24f, v = static_cast<float>(x & 0xffffff) * 0x1p-24f;
    data[i] = __float2bfloat16(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
  }
}

namespace {

struct Prepared {
  Prepared() {
    const int m = 8192;
    Problem p{scratch<bf16>(2ull * m * kK), scratch<bf16>(bytes_of_b()), scratch<bf16>(2ull * m * kN), m, nullptr};
    generate<<<1056, 256>>>(p.a, static_cast<int64_t>(m) * kK, 0);
    generate<<<1056, 256>>>(p.b, static_cast<int64_t>(kN) * kK, 1);
    compute(p);
    check(cudaDeviceSynchronize());
    answer = p.c;
  }
  bf16* answer;
};

const Prepared prepared;

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  copy(p.c, prepared.answer, bytes_of_c(p), p.stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
