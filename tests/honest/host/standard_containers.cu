// Host code with containers, strings, smart pointers and algorithms of the standard library; the plan is a vector of bands.
#include "hopper_gemm_kernel.cuh"
#include <algorithm>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Band {
  int first, rows;
};

std::vector<Band> bands_of(int m) {
  std::vector<Band> bands;
  for (int row = 0; row < m; row += 4096) bands.push_back({row, std::min(4096, m - row)});
  std::reverse(bands.begin(), bands.end());
  return bands;
}

std::string described(const std::vector<Band>& bands) {
  std::ostringstream text;
  for (const Band& band : bands) text << '[' << band.first << ", " << band.first + band.rows << ')';
  return text.str();
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const auto bands = std::make_unique<std::vector<Band>>(bands_of(p.m));
  const int total = std::accumulate(bands->begin(), bands->end(), 0, [](int sum, const Band& band) { return sum + band.rows; });
  if (total != p.m) TVM_FFI_THROW(RuntimeError) << "bands " << described(*bands) << " do not cover " << p.m << " rows";
  for (const Band& band : *bands) {
    const int64_t row = band.first;
    wg::launch(wg::maps_of(p.a + row * kK, p.b, p.c + row * kN, band.rows, wg::kCluster), band.rows, sm_count(p.device), p.stream);
  }
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
