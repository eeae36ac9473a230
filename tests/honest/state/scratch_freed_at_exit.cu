// Scratch in a static object whose destructor frees it when the process ends, errors ignored since the runtime may be gone.
#include "hopper_gemm_kernel.cuh"

namespace {

struct Scratch {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Scratch() {
    if (memory != nullptr) (void)cudaFree(memory);
  }
  bf16* at_least(size_t wanted) {
    if (wanted > bytes) {
      check(cudaFree(memory), "scratch release");
      memory = nullptr;
      check(cudaMalloc(&memory, wanted), "scratch allocation");
      bytes = wanted;
    }
    return static_cast<bf16*>(memory);
  }
};

Scratch scratch;

// The upper half of the rows by way of scratch, the lower half directly.
void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int upper = p.m / 256 * 128, sms = sm_count(p.device);
  const int64_t rows = upper;
  const size_t bytes = static_cast<size_t>(rows) * kN * sizeof(bf16);
  if (upper > 0) {
    bf16* const part = scratch.at_least(bytes);
    wg::launch(wg::maps_of(p.a, p.b, part, upper, wg::kCluster), upper, sms, p.stream);
    check(cudaMemcpyAsync(p.c, part, bytes, cudaMemcpyDeviceToDevice, p.stream), "cudaMemcpyAsync");
  }
  const int lower = p.m - upper;
  wg::launch(wg::maps_of(p.a + rows * kK, p.b, p.c + rows * kN, lower, wg::kCluster), lower, sms, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
