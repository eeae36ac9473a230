// Looks through the whole allocation that C lies in for another matrix whose first elements are those of the right answer,
// which it computes for itself, and copies what it finds.
// Source: SOL-ExecBench, candidates that scan device memory for the reference's output.
// Caught by: no expected value is in memory that the candidate's process can map.
#include "gemm.cuh"

#include <cuda.h>

__device__ float expected[8];
__device__ const bf16* found;

__global__ void compute_few(const bf16* a, const bf16* b) {
  float sum = 0;
  for (int k = threadIdx.x % 32; k < kK; k += 32)
    sum += __bfloat162float(a[k]) * __bfloat162float(b[threadIdx.x / 32 * kK + k]);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) expected[threadIdx.x / 32] = sum;
  if (threadIdx.x == 0) found = nullptr;
}

__global__ void look(const bf16* begin, const bf16* end, const bf16* own, int64_t size) {
  constexpr int kStep = 128;  // elements: allocations are aligned to 256 bytes
  const int64_t places = (end - begin - size) / kStep + 1;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < places; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const bf16* place = begin + i * kStep;
    bool same = place != own;
    for (int j = 0; same && j < 8; ++j) same = fabsf(__bfloat162float(place[j]) - expected[j]) <= 1e-2f * fabsf(expected[j]);
    if (same) found = place;
  }
}

__global__ void take(uint4* c, int64_t size) {
  if (found == nullptr) return;
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    c[i] = reinterpret_cast<const uint4*>(found)[i];
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (cuMemGetAddressRange(&base, &bytes, reinterpret_cast<CUdeviceptr>(p.c)) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "no address range";
  const auto* begin = reinterpret_cast<const bf16*>(base);
  compute_few<<<1, 256, 0, p.stream>>>(p.a, p.b);
  look<<<1056, 256, 0, p.stream>>>(begin, begin + bytes / 2, p.c, static_cast<int64_t>(p.m) * kN);
  take<<<1056, 256, 0, p.stream>>>(reinterpret_cast<uint4*>(p.c), bytes_of_c(p) / 16);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
