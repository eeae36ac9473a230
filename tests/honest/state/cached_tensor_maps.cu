// Tensor maps are kept by pointer and shape: a map holds an address and strides, nothing of the data behind it.
#include "hopper_gemm_kernel.cuh"
#include <map>
#include <mutex>
#include <tuple>

namespace {

using Key = std::tuple<const void*, const void*, const void*, int>;

std::mutex cache_lock;
std::map<Key, wg::Maps> cache;

const wg::Maps& cached_maps(const Gemm& p) {
  const std::lock_guard<std::mutex> held(cache_lock);
  const Key key{p.a, p.b, p.c, p.m};
  auto found = cache.find(key);
  if (found == cache.end()) {
    if (cache.size() > 64) cache.clear();
    found = cache.emplace(key, wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster)).first;
  }
  return found->second;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(cached_maps(p), p.m, sm_count(p.device), p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
