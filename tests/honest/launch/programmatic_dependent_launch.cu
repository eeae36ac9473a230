// A helper zeroes C; the product is launched as its programmatic dependent, so that its start overlaps the helper's end,
// and waits for it (griddepcontrol) before it touches memory.
#include "hopper_gemm.cuh"

namespace {

__global__ void __launch_bounds__(256) zero(uint4* c, int64_t count) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int64_t stride = static_cast<int64_t>(gridDim.x) * 256;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x; i < count; i += stride) c[i] = make_uint4(0, 0, 0, 0);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  zero<<<132, 256, 0, p.stream>>>(reinterpret_cast<uint4*>(p.c), static_cast<int64_t>(p.m) * kN / 8);
  check(cudaGetLastError(), "launching zero");
  cudaLaunchAttribute dependent = {};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2));
  config.blockDim = dim3(wg::kThreads);
  config.dynamicSmemBytes = wg::kSmemBytes;
  config.stream = p.stream;
  config.attrs = &dependent;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, gemm, maps.a, maps.b, maps.c, p.m), "cudaLaunchKernelEx");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
