// A right GEMM that declares a persisting access window over B, so that B would stay in L2 from one call to the next, past a
// flush that only reads or writes other memory.
// Source: this project's list of threats; CUDA Programming Guide, "L2 Set-Aside Cache for Persisting Accesses".
// Caught by: all inputs are written anew between calls and persisting lines are reset; the time is that of a cold cache.
#include "gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  int most = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxPersistingL2CacheSize, 0));
  check(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, most));
  cudaStreamAttrValue window{};
  window.accessPolicyWindow.base_ptr = p.b;
  window.accessPolicyWindow.num_bytes = static_cast<size_t>(most);
  window.accessPolicyWindow.hitRatio = 1.0f;
  window.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  window.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  check(cudaStreamSetAttribute(p.stream, cudaStreamAttributeAccessPolicyWindow, &window));
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
