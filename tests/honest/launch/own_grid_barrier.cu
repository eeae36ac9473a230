// A grid barrier of our own (an atomic counter and __nanosleep in the wait), in a cooperative launch, which guarantees that
// all blocks are resident. Before it the kernel zeroes C, after it computes.
#include "tile_gemm.cuh"

namespace {

__device__ unsigned arrived;  // counts up over all calls: a barrier is passed when a multiple of the grid has arrived

__device__ __forceinline__ void grid_barrier() {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned ticket = atomicAdd(&arrived, 1);
    const unsigned target = (ticket / gridDim.x + 1) * gridDim.x;
    while (static_cast<int>(*static_cast<volatile unsigned*>(&arrived) - target) < 0) __nanosleep(64);
    __threadfence();
  }
  __syncthreads();
}

__global__ void __launch_bounds__(mma::kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  const int64_t count = static_cast<int64_t>(m) * kN / 8;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    reinterpret_cast<uint4*>(c)[i] = make_uint4(0, 0, 0, 0);
  grid_barrier();
  for (int t = blockIdx.x; t < m / mma::kTile * mma::kTilesN; t += gridDim.x) {
    mma::gemm_tile(a, b, mma::tile_at(t, m / mma::kTile), 0, mma::kStepsK, mma::ToC{c});
    __syncthreads();  // the next tile's copies overwrite the stages
  }
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  allow_smem(gemm, mma::kSmemBytes);
  int per_sm = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, gemm, mma::kThreads, mma::kSmemBytes), "occupancy");
  const bf16 *a = p.a, *b = p.b;
  bf16* c = p.c;
  int m = p.m;
  void* arguments[] = {&a, &b, &c, &m};
  if (per_sm < 1) TVM_FFI_THROW(RuntimeError) << "no block of the kernel fits an SM";
  cudaLaunchAttribute cooperative = {};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(per_sm * sm_count(p.device));
  config.blockDim = dim3(mma::kThreads);
  config.dynamicSmemBytes = mma::kSmemBytes;
  config.stream = p.stream;
  config.attrs = &cooperative;
  config.numAttrs = 1;
  check(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(gemm), arguments), "cudaLaunchKernelExC");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
