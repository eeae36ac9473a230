// Counts its calls and uses the count: odd and even calls take turns between two halves of a scratch buffer, as double
// buffering does. Every call computes everything (split along K in two, summed in FP32).
#include "tile_gemm.cuh"

namespace {

unsigned calls = 0;
float* halves[2] = {nullptr, nullptr};
int64_t held = 0;

struct ToScratch {
  float* sums;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    *reinterpret_cast<float2*>(sums + static_cast<int64_t>(row) * kN + col) = make_float2(low, high);
  }
};

__global__ void __launch_bounds__(mma::kThreads, 2) first_half(const bf16* a, const bf16* b, float* sums, int m) {
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), 0, mma::kStepsK / 2, ToScratch{sums});
}

struct AddScratch {
  const float* sums;
  bf16* c;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    const float2 other = *reinterpret_cast<const float2*>(sums + static_cast<int64_t>(row) * kN + col);
    mma::ToC{c}(row, col, other.x + low, other.y + high);
  }
};

__global__ void __launch_bounds__(mma::kThreads, 2) second_half(const bf16* a, const bf16* b, const float* sums, bf16* c, int m) {
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), mma::kStepsK / 2, mma::kStepsK, AddScratch{sums, c});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    for (float*& half : halves) {
      check(cudaFree(half), "scratch release");
      check(cudaMalloc(reinterpret_cast<void**>(&half), count * sizeof(float)), "scratch allocation");
    }
    held = count;
  }
  float* sums = halves[calls++ % 2];
  const int blocks = p.m / mma::kTile * mma::kTilesN;
  allow_smem(first_half, mma::kSmemBytes);
  allow_smem(second_half, mma::kSmemBytes);
  first_half<<<blocks, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, sums, p.m);
  second_half<<<blocks, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, sums, p.c, p.m);
  check(cudaGetLastError(), "launching the halves");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
