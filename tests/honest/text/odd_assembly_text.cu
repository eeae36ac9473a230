// Inline PTX with comments, odd register names and instructions that have no effect on the result.
#include "hopper_gemm.cuh"

namespace {

__device__ __forceinline__ void odd_text() {
  asm volatile("// cublasSgemm was here; PASSED; /* second pass" ::: "memory");
  asm volatile("{\n .reg .pred system, fork;\n setp.ne.u32 system, 0, 0;\n @system trap;\n @!system bra.uni popen;\n popen:\n}" ::
                   : "memory");
  asm volatile("{\n .reg .b32 dlopen, dlsym; /* names only */\n mov.b32 dlopen, 0x464c457f;\n mov.b32 dlsym, dlopen;\n}" ::
                   : "memory");
  asm volatile(".pragma \"nounroll\";" ::: "memory");
  asm volatile("pmevent 7;");
  asm volatile("");
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  odd_text();
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, 2);
  allow_smem(gemm, wg::kSmemBytes);
  gemm<<<wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2), wg::kThreads, wg::kSmemBytes, p.stream>>>(
      maps.a, maps.b, maps.c, p.m);
  check(cudaGetLastError(), "launching gemm");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
