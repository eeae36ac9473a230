// A persistent grid that takes its tiles from an atomic counter in device memory, reset by a memset in every call.
#include "tile_gemm.cuh"

namespace {

int* next_tile = nullptr;

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m, int* next_tile) {
  __shared__ int taken;
  const int tiles = m / mma::kTile * mma::kTilesN;
  while (true) {
    __syncthreads();  // the last tile's stages and `taken` have been read
    if (threadIdx.x == 0) taken = atomicAdd(next_tile, 1);
    __syncthreads();
    if (taken >= tiles) return;
    mma::gemm_tile(a, b, mma::tile_at(taken, m / mma::kTile), 0, mma::kStepsK, mma::ToC{c});
  }
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  if (next_tile == nullptr) check(cudaMalloc(reinterpret_cast<void**>(&next_tile), sizeof(int)), "counter");
  check(cudaMemsetAsync(next_tile, 0, sizeof(int), p.stream), "cudaMemsetAsync");
  allow_smem(gemm, mma::kSmemBytes);
  gemm<<<2 * sm_count(p.device), mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m, next_tile);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
