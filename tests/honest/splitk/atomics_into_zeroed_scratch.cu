// Scratch zeroed by cudaMemsetAsync, two slices of K added to it with atomicAdd, a kernel that converts. Two addends on a
// zero give the same bits in either order.
#include "splitk.cuh"

namespace {

float* sums = nullptr;
int64_t held = 0;

struct Adding {
  float* sums;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    float* at = sums + static_cast<int64_t>(row) * kN + col;
    atomicAdd(reinterpret_cast<float2*>(at), make_float2(low, high));
  }
};

__global__ void __launch_bounds__(mma::kThreads, 2) slice(const bf16* a, const bf16* b, float* sums, int m) {
  const int begin = blockIdx.y * mma::kStepsK / 2;
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), begin, begin + mma::kStepsK / 2, Adding{sums});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(sums), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&sums), count * sizeof(float)), "scratch allocation");
    held = count;
  }
  check(cudaMemsetAsync(sums, 0, count * sizeof(float), p.stream), "cudaMemsetAsync");
  allow_smem(slice, mma::kSmemBytes);
  slice<<<dim3(p.m / mma::kTile * mma::kTilesN, 2), mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, sums, p.m);
  check(cudaGetLastError(), "launching slice");
  launch_reduce(sums, p.c, count, 1, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
