// The order of tile columns lies in managed memory, filled by the host before the first launch.
#include "tile_gemm.cuh"

namespace {

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m, const int* order) {
  mma::Tile tile = mma::tile_at(blockIdx.x, m / mma::kTile);
  tile.col = order[tile.col / mma::kTile] * mma::kTile;
  mma::gemm_tile(a, b, tile, 0, mma::kStepsK, mma::ToC{c});
}

int* order = nullptr;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  if (order == nullptr) {
    check(cudaMallocManaged(&order, mma::kTilesN * sizeof(int)), "cudaMallocManaged");
    for (int i = 0; i < mma::kTilesN; ++i) order[i] = mma::kTilesN - 1 - i;
  }
  allow_smem(gemm, mma::kSmemBytes);
  gemm<<<p.m / mma::kTile * mma::kTilesN, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m, order);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
