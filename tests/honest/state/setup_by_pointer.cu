// Looks like memoizing by pointer: what depends on the pointers is skipped when they are the ones of the last call. The
// product itself is computed in every call.
#include "hopper_gemm_kernel.cuh"

static const void* last_a = nullptr;
static const void* last_b = nullptr;
static void* last_c = nullptr;
static int last_m = 0;
static int calls = 0, hits = 0;
static wg::Maps maps;

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  ++calls;
  if (p.a == last_a && p.b == last_b && p.c == last_c && p.m == last_m) {
    ++hits;  // same pointers: nothing to set up
  } else {
    maps = wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster);
    last_a = p.a, last_b = p.b, last_c = p.c, last_m = p.m;
  }
  if (hits > calls) TVM_FFI_THROW(RuntimeError) << "more hits than calls";
  wg::launch(maps, p.m, sm_count(p.device), p.stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
