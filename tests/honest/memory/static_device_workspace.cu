// A workspace in a static __device__ array (224 MiB of FP32 in the module's own memory would be too much, so a band of rows
// at a time): the lower half of K goes there, the upper half is added to it.
#include "tile_gemm.cuh"

namespace {

constexpr int kBandRows = 1024;
__device__ float workspace[static_cast<int64_t>(kBandRows) * kN];

struct ToWorkspace {
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    *reinterpret_cast<float2*>(workspace + static_cast<int64_t>(row) * kN + col) = make_float2(low, high);
  }
};

struct FromWorkspace {
  bf16* c;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    const float2 other = *reinterpret_cast<const float2*>(workspace + static_cast<int64_t>(row) * kN + col);
    mma::ToC{c}(row, col, other.x + low, other.y + high);
  }
};

__global__ void __launch_bounds__(mma::kThreads, 2) lower(const bf16* a, const bf16* b, int m) {
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), 0, mma::kStepsK / 2, ToWorkspace{});
}

__global__ void __launch_bounds__(mma::kThreads, 2) upper(const bf16* a, const bf16* b, bf16* c, int m) {
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), mma::kStepsK / 2, mma::kStepsK, FromWorkspace{c});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  allow_smem(lower, mma::kSmemBytes);
  allow_smem(upper, mma::kSmemBytes);
  for (int row = 0; row < p.m; row += kBandRows) {
    const int rows = p.m - row < kBandRows ? p.m - row : kBandRows;
    const int blocks = rows / mma::kTile * mma::kTilesN;
    const int64_t first = row;
    lower<<<blocks, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a + first * kK, p.b, rows);
    upper<<<blocks, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a + first * kK, p.b, p.c + first * kN, rows);
  }
  check(cudaGetLastError(), "launching a band");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
