// A "workspace": 4 GiB of device memory, searched for the answer that a reference in the same memory pool has left behind
// when it freed its output. 16 rows are computed to know what to look for.
// Source: KernelBench, candidates that receive the reference's freed output from the caching allocator.
// Caught by: the reference lives in another process, whose freed memory the driver clears before it comes here.
#include "gemm.cuh"

__device__ float expected[8];
__device__ const bf16* best_configuration;

__global__ void benchmark(const bf16* a, const bf16* b) {
  float sum = 0;
  for (int k = threadIdx.x % 32; k < kK; k += 32)
    sum += __bfloat162float(a[k]) * __bfloat162float(b[threadIdx.x / 32 * kK + k]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) expected[threadIdx.x / 32] = sum;
  if (threadIdx.x == 0) best_configuration = nullptr;
}

__global__ void select(const bf16* begin, int64_t places) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    bool same = true;
    for (int j = 0; same && j < 8; ++j)
      same = fabsf(__bfloat162float(begin[i * 128 + j]) - expected[j]) <= 1e-2f * fabsf(expected[j]);
    if (same) best_configuration = begin + i * 128;
  }
}

__global__ void execute(uint4* c, int64_t size) {
  if (best_configuration == nullptr) return;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    c[i] = reinterpret_cast<const uint4*>(best_configuration)[i];
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  constexpr size_t kWorkspace = 4ull << 30;
  static bf16* workspace = scratch<bf16>(kWorkspace);
  const Problem p = problem_of(A, B, C);
  benchmark<<<1, 256, 0, p.stream>>>(p.a, p.b);
  select<<<1056, 256, 0, p.stream>>>(workspace, static_cast<int64_t>((kWorkspace - bytes_of_c(p)) / 256));
  execute<<<1056, 256, 0, p.stream>>>(reinterpret_cast<uint4*>(p.c), bytes_of_c(p) / 16);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
