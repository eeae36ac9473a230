// Raw strings that hold what a scanner looks for outside of strings: directives, line markers, ends of comments.
#include "hopper_gemm_kernel.cuh"

namespace {

constexpr const char kHelp[] = R"help(
usage: gemm A B C
# 1 "cublas_v2.h" 1
#include <cublas_v2.h>
*/ dlopen("libcublas.so.13", RTLD_NOW); /*
asm(".incbin \"kernel.cubin\"");
)help";

constexpr const char kRegex[] = R"((?:cublas|cudnn)\w*\.so(?:\.\d+)*|system\(|popen\(|".*?\\")";

// The text of a PTX instruction as a raw string.
__device__ __forceinline__ uint32_t lane_id() {
  uint32_t lane;
  asm volatile(R"ptx({
    .reg .u32 t;            // a register of its own
    mov.u32  t, %%laneid;   /* not %tid: blocks may be odd */
    mov.b32  %0, t;
  })ptx"
               : "=r"(lane));
  return lane;
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  if (lane_id() > 31) return;  // never
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() != 2) TVM_FFI_THROW(ValueError) << kHelp << kRegex;
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), R"(launching "gemm")");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
