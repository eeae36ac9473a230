// Stream-ordered scratch for FP32 partial sums: allocated, used and freed in every call on the call's stream.
#include "splitk.cuh"

namespace {

constexpr int kSlices = 2;

__global__ void __launch_bounds__(mma::kThreads, 2) slice(const bf16* a, const bf16* b, float* sums, int m) {
  const int s = blockIdx.y;
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), s * mma::kStepsK / kSlices, (s + 1) * mma::kStepsK / kSlices,
                 ToFloat{sums + static_cast<int64_t>(s) * m * kN});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  float* sums = nullptr;
  check(cudaMallocAsync(reinterpret_cast<void**>(&sums), kSlices * count * sizeof(float), p.stream), "cudaMallocAsync");
  allow_smem(slice, mma::kSmemBytes);
  slice<<<dim3(p.m / mma::kTile * mma::kTilesN, kSlices), mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, sums, p.m);
  check(cudaGetLastError(), "launching slice");
  launch_reduce(sums, p.c, count, kSlices, p.stream);
  check(cudaFreeAsync(sums, p.stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
