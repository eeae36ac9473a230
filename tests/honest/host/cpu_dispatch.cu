// Host code with functions for several processors, builtins that ask the processor, inline assembly of the host, weak and
// aliased functions. All of them only choose a height of band.
#include "hopper_gemm_kernel.cuh"

#if defined(__x86_64__)
__attribute__((target("avx2"))) static int sum_wide(const int* values, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}
#endif

static int sum_plain(const int* values, int count) {
  int sum = 0;
  for (int i = 0; i < count; ++i) sum += values[i];
  return sum;
}

extern "C" __attribute__((weak, noinline)) int band_bias() { return 0; }
extern "C" int band_bias_alias() __attribute__((alias("band_bias")));

static int band() {
  static const int parts[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int sum = sum_plain(parts, 8);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) sum = sum_wide(parts, 8);
  unsigned low, high;
  asm volatile("pause" ::: "memory");
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  sum += (low | high) == 0u && high != 0u;  // never
#endif
  return sum + band_bias_alias();
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream, band());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
