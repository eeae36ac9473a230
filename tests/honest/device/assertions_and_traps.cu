// Asserts and traps guard what cannot happen.
#include "tile_gemm.cuh"
#include <assert.h>

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  assert(m % mma::kTile == 0);
  assert(gridDim.x == m / mma::kTile * mma::kTilesN && "the grid has one block a tile");
  const mma::Tile tile = mma::tile_at(blockIdx.x, m / mma::kTile);
  if (tile.row >= m || tile.col >= kN) __trap();
  if (a == nullptr) asm volatile("exit;");
  if (c == nullptr) __brkpt();
  __builtin_assume(m > 0);
  mma::gemm_tile(a, b, tile, 0, mma::kStepsK, mma::ToC{c});
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  allow_smem(gemm, mma::kSmemBytes);
  gemm<<<p.m / mma::kTile * mma::kTilesN, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
