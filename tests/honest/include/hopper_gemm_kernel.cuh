// The reference's kernel itself and its launch, for honest kernels whose host code is what looks odd.
#include "hopper_gemm.cuh"

namespace wg {

constexpr int kCluster = 2;
constexpr int kBand = 8;

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, int m) {
  gemm_body<kCluster>(&map_a, &map_b, Bands<kCluster>{m, kBand}, StoreByTma{&map_c, m});
}

// The same with bands of another height, for kernels that choose it at run time.
__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    banded_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                  const __grid_constant__ CUtensorMap map_c, int m, int band) {
  gemm_body<kCluster>(&map_a, &map_b, Bands<kCluster>{m, band}, StoreByTma{&map_c, m});
}

inline int blocks_of(int rows, int sms) { return grid_of(Bands<kCluster>{rows, kBand}.count(), sms, kCluster); }

// C = A B^T for `rows` rows on `stream`, at most `sms` blocks.
inline void launch(const Maps& maps, int rows, int sms, cudaStream_t stream) {
  allow_smem(gemm_kernel, kSmemBytes);
  gemm_kernel<<<blocks_of(rows, sms), kThreads, kSmemBytes, stream>>>(maps.a, maps.b, maps.c, rows);
  check(cudaGetLastError(), "launching gemm_kernel");
}

inline void launch(const Maps& maps, int rows, int sms, cudaStream_t stream, int band) {
  allow_smem(banded_kernel, kSmemBytes);
  banded_kernel<<<blocks_of(rows, sms), kThreads, kSmemBytes, stream>>>(maps.a, maps.b, maps.c, rows, band);
  check(cudaGetLastError(), "launching banded_kernel");
}

inline void launch(const Gemm& p) {
  launch(maps_of(p.a, p.b, p.c, p.m, kCluster), p.m, sm_count(p.device), p.stream);
}

}  // namespace wg
