// C in FP32 first, then a kernel that converts it: another precision appears in between, a higher one.
#include "hopper_gemm.cuh"
#include "splitk.cuh"

namespace {

float* wide = nullptr;
int64_t held = 0;

struct ToWide {
  float* wide;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high, const wg::Work&) const {
    *reinterpret_cast<float2*>(wide + static_cast<int64_t>(row) * kN + col) = make_float2(low, high);
  }
};

__global__ void __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* wide, int m) {
  wg::gemm_body<1>(&a, &b, wg::Bands<1>{m, 16}, wg::StoreByElement<ToWide>{{wide}, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(wide), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&wide), count * sizeof(float)), "scratch allocation");
    held = count;
  }
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 1);
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<1>{p.m, 16}.count(), sm_count(p.device), 1), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, wide, p.m);
  check(cudaGetLastError(), "launching gemm");
  launch_reduce(wide, p.c, count, 1, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
