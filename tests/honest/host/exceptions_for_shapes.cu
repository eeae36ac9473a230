// Throws and catches exceptions of its own: for shapes that it does not take, and inside where a plan does not fit.
#include "hopper_gemm_kernel.cuh"
#include <stdexcept>

namespace {

struct NoPlan : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int band_for(int m, int wanted) {
  if (wanted * 2 * wg::kBlockM > m) throw NoPlan("the band is higher than the matrix");
  return wanted;
}

int planned(int m) {
  for (int wanted = 32; wanted > 1; wanted /= 2) {
    try {
      return band_for(m / 4, wanted);
    } catch (const NoPlan&) {
      // A lower band, then.
    }
  }
  return 1;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() != 2) throw std::invalid_argument("A must be a matrix");
  const Gemm p = gemm_of(A, B, C);
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream, planned(p.m));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
