// The first call for a shape tries two orders of tiles with events around them and keeps the faster. It computes the
// product every time, and both orders give the same bits.
#include "hopper_gemm_kernel.cuh"
#include <map>

namespace {

float milliseconds(const wg::Maps& maps, const Gemm& p, int sms, int band) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  check(cudaEventRecord(begin, p.stream), "event");
  wg::launch(maps, p.m, sms, p.stream, band);
  check(cudaEventRecord(end, p.stream), "event");
  check(cudaEventSynchronize(end), "event");
  float elapsed = 0;
  check(cudaEventElapsedTime(&elapsed, begin, end), "event");
  check(cudaEventDestroy(begin), "event");
  check(cudaEventDestroy(end), "event");
  return elapsed;
}

std::map<int, int> best_band;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const wg::Maps maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
  const int sms = sm_count(p.device);
  if (best_band.find(p.m) == best_band.end()) {
    const float eight = milliseconds(maps, p, sms, 8), four = milliseconds(maps, p, sms, 4);
    best_band[p.m] = four < eight ? 4 : 8;
  }
  wg::launch(maps, p.m, sms, p.stream, best_band[p.m]);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
