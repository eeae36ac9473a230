// The order of tile columns comes from a table behind a texture object.
#include "tile_gemm.cuh"

namespace {

__global__ void __launch_bounds__(mma::kThreads, 2)
    gemm(const bf16* a, const bf16* b, bf16* c, int m, cudaTextureObject_t order) {
  mma::Tile tile = mma::tile_at(blockIdx.x, m / mma::kTile);
  tile.col = tex1Dfetch<int>(order, tile.col / mma::kTile) * mma::kTile;
  mma::gemm_tile(a, b, tile, 0, mma::kStepsK, mma::ToC{c});
}

cudaTextureObject_t order_of_columns() {
  static cudaTextureObject_t texture = [] {
    int order[mma::kTilesN];
    for (int i = 0; i < mma::kTilesN; ++i) order[i] = i ^ 1;  // neighbours trade places
    void* table = nullptr;
    check(cudaMalloc(&table, sizeof order), "table");
    check(cudaMemcpy(table, order, sizeof order, cudaMemcpyHostToDevice), "table");
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = table;
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = sizeof order;
    cudaTextureDesc reading = {};
    reading.readMode = cudaReadModeElementType;
    cudaTextureObject_t made = 0;
    check(cudaCreateTextureObject(&made, &resource, &reading, nullptr), "cudaCreateTextureObject");
    return made;
  }();
  return texture;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  allow_smem(gemm, mma::kSmemBytes);
  gemm<<<p.m / mma::kTile * mma::kTilesN, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m, order_of_columns());
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
