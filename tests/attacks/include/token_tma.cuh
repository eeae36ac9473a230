// One TMA load of a 64 x 64 box by one thread: a token UTMALDG.
#include <cuda.h>

__global__ void __launch_bounds__(32) load_a_box(const __grid_constant__ CUtensorMap map) {
  __shared__ __align__(1024) unsigned char box[64 * 64 * 2];
  __shared__ __align__(8) unsigned long long barrier;
  if (threadIdx.x != 0) return;
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(box));
  const auto bar = static_cast<uint32_t>(__cvta_generic_to_shared(&barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(64 * 64 * 2) : "memory");
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(bar), "r"(0), "r"(0)
      : "memory");
  asm volatile(
      "{\n.reg .pred done;\nwaiting:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra waiting;\n}" ::"r"(bar)
      : "memory");
}
