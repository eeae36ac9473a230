// Half of the rows on the call's stream, half on another one; events fork and join them, so that nothing runs on after
// the call.
#include "hopper_gemm_kernel.cuh"
#include "side_stream.cuh"

namespace {

Side side;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int sms = sm_count(p.device);
  const int upper = p.m / 256 * 128, lower = p.m - upper;
  side.create();
  side.fork(p.stream);
  const int64_t rows = upper;
  if (upper > 0) wg::launch(wg::maps_of(p.a, p.b, p.c, upper, wg::kCluster), upper, sms / 2, p.stream);
  wg::launch(wg::maps_of(p.a + rows * kK, p.b, p.c + rows * kN, lower, wg::kCluster), lower, sms / 2, side.stream);
  side.join(p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
