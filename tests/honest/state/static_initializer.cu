// A global object whose constructor computes a table of the order of tile columns before main, from constants alone.
#include "hopper_gemm.cuh"
#include <array>

namespace {

struct Order {
  std::array<int, wg::kTilesN> columns;
  Order() {
    // Even columns upwards, then odd columns downwards.
    int next = 0;
    for (int i = 0; i < wg::kTilesN; i += 2) columns[next++] = i;
    for (int i = wg::kTilesN - 1; i > 0; i -= 2) columns[next++] = i;
  }
};

const Order order;

struct Columns {
  int column[wg::kTilesN];
};

struct Permuted {
  wg::Bands<2> bands;
  const Columns* table;
  __device__ __forceinline__ int count() const { return bands.count(); }
  __device__ __forceinline__ wg::Work operator()(int t, int rank) const {
    wg::Work work = bands(t, rank);
    work.col = table->column[work.col / wg::kBlockN] * wg::kBlockN;
    return work;
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         const __grid_constant__ Columns columns, int m) {
  wg::gemm_body<2>(&a, &b, Permuted{{m, 8}, &columns}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  Columns columns;
  for (int i = 0; i < wg::kTilesN; ++i) columns.column[i] = order.columns[i];
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, maps.c, columns, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
