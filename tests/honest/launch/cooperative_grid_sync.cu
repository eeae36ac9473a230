// One cooperative launch for everything: a grid of blocks that are all resident computes two slices of K for every tile,
// meets at grid.sync(), and adds the slices.
#include "splitk.cuh"
#include <cooperative_groups.h>

namespace {

namespace cg = cooperative_groups;

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m, float* sums) {
  const int64_t count = static_cast<int64_t>(m) * kN;
  const int items = m / mma::kTile * mma::kTilesN * 2;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int s = item % 2;
    mma::gemm_tile(a, b, mma::tile_at(item / 2, m / mma::kTile), s * mma::kStepsK / 2, (s + 1) * mma::kStepsK / 2,
                   ToFloat{sums + s * count});
    __syncthreads();  // the next tile's copies overwrite the stages
  }
  cg::this_grid().sync();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 2; i += stride) {
    const float2 x = reinterpret_cast<const float2*>(sums)[i], y = reinterpret_cast<const float2*>(sums + count)[i];
    reinterpret_cast<uint32_t*>(c)[i] = pack_bf16(x.x + y.x, x.y + y.y);
  }
}

float* sums = nullptr;
int64_t held = 0;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(sums), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&sums), 2 * count * sizeof(float)), "scratch allocation");
    held = count;
  }
  allow_smem(gemm, mma::kSmemBytes);
  int per_sm = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, gemm, mma::kThreads, mma::kSmemBytes), "occupancy");
  const bf16 *a = p.a, *b = p.b;
  bf16* c = p.c;
  int m = p.m;
  void* arguments[] = {&a, &b, &c, &m, &sums};
  check(cudaLaunchCooperativeKernel(gemm, dim3(per_sm * sm_count(p.device)), dim3(mma::kThreads), arguments, mma::kSmemBytes,
                                    p.stream),
        "cudaLaunchCooperativeKernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
