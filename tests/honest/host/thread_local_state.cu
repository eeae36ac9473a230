// Thread-local and atomic state on the host, a recursive mutex and a counter behind acquire and release.
#include "hopper_gemm_kernel.cuh"
#include <atomic>
#include <mutex>

namespace {

thread_local wg::Maps maps;
thread_local int generation = 0;
std::atomic<int> active{0};
std::recursive_mutex launching;

struct Active {
  Active() { active.fetch_add(1, std::memory_order_acquire); }
  ~Active() { active.fetch_sub(1, std::memory_order_release); }
};

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const Active guard;
  const std::scoped_lock held(launching);
  ++generation;
  maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
  wg::launch(maps, p.m, sm_count(p.device), p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
