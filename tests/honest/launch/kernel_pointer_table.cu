// Kernels are chosen from a table of function pointers and launched through cudaLaunchKernel.
#include "hopper_gemm.cuh"

namespace {

template <int kBandHeight>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, kBandHeight}, wg::StoreByTma{&c, m});
}

struct Entry {
  const char* name;
  int at_least;
  void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, int);
};

const Entry table[] = {{"high", 4096, gemm<8>}, {"low", 1, gemm<2>}};

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  int m = p.m;
  void* arguments[] = {&maps.a, &maps.b, &maps.c, &m};
  for (const Entry& entry : table) {
    if (p.m < entry.at_least) continue;
    const void* function = reinterpret_cast<const void*>(entry.kernel);
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, wg::kSmemBytes), entry.name);
    const int blocks = wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2);
    check(cudaLaunchKernel(function, dim3(blocks), dim3(wg::kThreads), arguments, wg::kSmemBytes, p.stream), entry.name);
    return;
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
