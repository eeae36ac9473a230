// A kernel compares 64 elements of A and B with those of the remembered call. Where they agree the remembered C is copied,
// else all is computed.
// Source: KernelBench and robust-kbench, results cached by a few elements.
// Caught by: every element of every input changes, so the fingerprint never agrees, and the true time is measured.
#include "gemm.cuh"

__device__ unsigned fingerprint[64];
__device__ int known;

__global__ void look(const unsigned* a, const unsigned* b) {
  const unsigned seen = a[threadIdx.x * 4099] * 31 + b[threadIdx.x * 4099];
  const int same = __syncthreads_and(seen == fingerprint[threadIdx.x]);
  fingerprint[threadIdx.x] = seen;
  if (threadIdx.x == 0) known = same;
}

__global__ void __launch_bounds__(kThreads, 2)
    answer(const bf16* a, const bf16* b, bf16* c, int m, uint4* memory) {
  auto* out = reinterpret_cast<uint4*>(c);
  const int64_t size = static_cast<int64_t>(m) * kN / 8, step = static_cast<int64_t>(gridDim.x) * kThreads;
  if (!known) return gemm_tile(a, b, c, m, kK / kBlockK);
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < size; i += step) out[i] = memory[i];
}

__global__ void keep(uint4* memory, const uint4* c, int64_t size) {
  if (known) return;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    memory[i] = c[i];
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static uint4* memory = nullptr;
  const Problem p = problem_of(A, B, C);
  if (memory == nullptr) memory = scratch<uint4>(bytes_of_c(p));
  look<<<1, 64, 0, p.stream>>>(reinterpret_cast<const unsigned*>(p.a), reinterpret_cast<const unsigned*>(p.b));
  launch_gemm(answer, p, memory);
  keep<<<1056, 256, 0, p.stream>>>(memory, reinterpret_cast<const uint4*>(p.c), bytes_of_c(p) / 16);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
