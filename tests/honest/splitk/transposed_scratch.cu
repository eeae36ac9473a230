// Computes C^T = B A^T into scratch and transposes it with a helper kernel: operands and result trade places on the way.
#include "tile_gemm.cuh"

namespace {

bf16* scratch = nullptr;
int64_t held = 0;

// Tile rows are those of B, tile columns those of A.
__global__ void __launch_bounds__(mma::kThreads, 2) gemm_transposed(const bf16* a, const bf16* b, bf16* ct, int m) {
  const mma::Tile tile = mma::tile_at(blockIdx.x, m / mma::kTile);
  mma::gemm_tile(b, a, mma::Tile{tile.col, tile.row}, 0, mma::kStepsK, mma::ToC{ct, m});
}

__global__ void __launch_bounds__(256) transpose(const uint16_t* ct, uint16_t* c, int m) {
  __shared__ uint16_t square[64][65];
  const int n0 = blockIdx.x * 64, m0 = blockIdx.y * 64;
  for (int i = threadIdx.x; i < 64 * 64; i += 256) square[i / 64][i % 64] = ct[static_cast<int64_t>(n0 + i / 64) * m + m0 + i % 64];
  __syncthreads();
  for (int i = threadIdx.x; i < 64 * 64; i += 256) c[static_cast<int64_t>(m0 + i / 64) * kN + n0 + i % 64] = square[i % 64][i / 64];
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(scratch), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&scratch), count * sizeof(bf16)), "scratch allocation");
    held = count;
  }
  allow_smem(gemm_transposed, mma::kSmemBytes);
  gemm_transposed<<<p.m / mma::kTile * mma::kTilesN, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, scratch, p.m);
  transpose<<<dim3(kN / 64, p.m / 64), 256, 0, p.stream>>>(reinterpret_cast<const uint16_t*>(scratch),
                                                          reinterpret_cast<uint16_t*>(p.c), p.m);
  check(cudaGetLastError(), "launching gemm_transposed and transpose");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
