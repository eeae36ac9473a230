// Lambdas in device code, one of them generic, are what the tile's sums are handed to.
#include "tile_gemm.cuh"

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  const auto place = [](auto row, auto col) { return static_cast<int64_t>(row) * kN + col; };
  const auto store = [=](int row, int col, float low, float high) {
    if (row < m) *reinterpret_cast<uint32_t*>(c + place(row, col)) = pack_bf16(low, high);
  };
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), 0, mma::kStepsK, store);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  allow_smem(gemm, mma::kSmemBytes);
  const auto blocks = [](int m) { return m / mma::kTile * mma::kTilesN; };
  gemm<<<blocks(p.m), mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
