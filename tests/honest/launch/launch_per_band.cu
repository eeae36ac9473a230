// One launch for each band of 512 rows, sixteen in all, each too small to fill the device for long.
#include "hopper_gemm_kernel.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int sms = sm_count(p.device);
  for (int row = 0; row < p.m; row += 512) {
    const int64_t first = row;
    const int rows = p.m - row < 512 ? p.m - row : 512;
    wg::launch(wg::maps_of(p.a + first * kK, p.b, p.c + first * kN, rows, wg::kCluster), rows, sms, p.stream);
  }
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
