// Inline, nested, unnamed and aliased namespaces, some with names near a library's, and C++ attributes of the compiler.
#include "hopper_gemm.cuh"

inline namespace v2 {
namespace cublas_free::detail::inline abi_13 {

struct [[nodiscard]] Plan {
  [[maybe_unused]] int dlsym_like = 0;
  int band = 8;
};

[[gnu::noinline, gnu::cold]] static void refuse(int m) { TVM_FFI_THROW(ValueError) << "no plan for M = " << m; }
__attribute__((always_inline, pure)) static inline int height(const Plan& plan) { return plan.band; }

}  // namespace cublas_free::detail::inline abi_13
namespace cutlass_like {

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    device_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                  const __grid_constant__ CUtensorMap c, int m, int band) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, band}, wg::StoreByTma{&c, m});
}

}  // namespace cutlass_like
}  // namespace v2

namespace {
namespace cf = ::cublas_free::detail;
using cutlass_like::device_kernel;

[[gnu::flatten]] void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const cf::Plan plan;
  if (__builtin_expect(p.m < 128, 0)) cf::refuse(p.m);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(device_kernel, wg::kSmemBytes);
  const int blocks = wg::grid_of(wg::Bands<2>{p.m, cf::height(plan)}.count(), sm_count(p.device), 2);
  device_kernel<<<blocks, wg::kThreads, wg::kSmemBytes, p.stream>>>(maps.a, maps.b, maps.c, p.m, cf::height(plan));
  check(cudaGetLastError(), "launching device_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
