// A cache of plans by a hash of the shape (FNV-1a), in the manner of a memo of results; a plan is a height of band.
#include "hopper_gemm_kernel.cuh"
#include <unordered_map>

namespace {

uint64_t fingerprint(const int64_t* values, int count) {
  uint64_t hash = 14695981039346656037ull;
  for (int i = 0; i < count; ++i)
    for (int byte = 0; byte < 8; ++byte) hash = (hash ^ ((values[i] >> (8 * byte)) & 0xff)) * 1099511628211ull;
  return hash;
}

int planned_band(int m) {
  int best = 8;
  while (best > 1 && best * 2 * wg::kBlockM > m) best /= 2;
  return best;
}

std::unordered_map<uint64_t, int> memo;

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t shape[] = {p.m, kN, kK, p.device};
  const auto [entry, fresh] = memo.try_emplace(fingerprint(shape, 4), 0);
  if (fresh) entry->second = planned_band(p.m);
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream, entry->second);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
