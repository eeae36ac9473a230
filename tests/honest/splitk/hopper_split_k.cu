// The wgmma body with K in two slices: work items of the persistent grid are (tile, slice), FP32 partial sums go to scratch
// that is kept, a second kernel adds them. One of the two kernels that write memory holds no target instruction.
#include "hopper_gemm.cuh"
#include "splitk.cuh"

namespace {

constexpr int kSlices = 2;

struct Sliced {
  wg::Bands<2> bands;
  __device__ __forceinline__ int count() const { return bands.count() * kSlices; }
  __device__ __forceinline__ wg::Work operator()(int t, int rank) const {
    wg::Work work = bands(t / kSlices, rank);
    work.k_begin = t % kSlices * (wg::kStepsK / kSlices);
    work.k_end = work.k_begin + wg::kStepsK / kSlices;
    return work;
  }
};

struct ToSlice {
  float* sums;
  int64_t count;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high, const wg::Work& work) const {
    float* slice = sums + (work.k_begin == 0 ? 0 : count);
    *reinterpret_cast<float2*>(slice + static_cast<int64_t>(row) * kN + col) = make_float2(low, high);
  }
};

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* sums, int m) {
  wg::gemm_body<2>(&a, &b, Sliced{{m, 8}}, wg::StoreByElement<ToSlice>{{sums, static_cast<int64_t>(m) * kN}, m});
}

float* sums = nullptr;
int64_t held = 0;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(sums), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&sums), kSlices * count * sizeof(float)), "scratch allocation");
    held = count;
  }
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  const int items = wg::Bands<2>{p.m, 8}.count() * kSlices;
  gemm<<<wg::grid_of(items, sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, sums, p.m);
  check(cudaGetLastError(), "launching gemm");
  launch_reduce(sums, p.c, count, kSlices, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
