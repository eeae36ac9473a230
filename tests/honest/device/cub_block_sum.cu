// CUB's block primitive (not a device algorithm) sums the absolute values of a part of C after the product: a statistic
// that is kept in a device global.
#include "hopper_gemm_kernel.cuh"
#include <cub/block/block_reduce.cuh>

namespace {

__device__ float magnitude;

__global__ void __launch_bounds__(256) statistic(const bf16* c) {
  using Reduce = cub::BlockReduce<float, 256>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = 0.f;
  for (int i = threadIdx.x; i < kN; i += 256) sum += fabsf(__bfloat162float(c[i]));
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) magnitude = sum;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(p);
  statistic<<<1, 256, 0, p.stream>>>(p.c);
  check(cudaGetLastError(), "launching statistic");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
