// Zeroes O and fills LSE with a pattern of bytes before it computes both, and launches through cudaLaunchKernelEx.
constexpr bool kCausal = true;
#include "attention_forward.cuh"

namespace {

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const Forward p = forward_of(Q, K, V, O, LSE);
  const size_t rows = static_cast<size_t>(p.heads) * p.seq;
  check(cudaMemsetAsync(p.o, 0, rows * kD * sizeof(bf16), p.stream), "cudaMemsetAsync");
  check(cudaMemsetAsync(p.lse, 0xff, rows * sizeof(float), p.stream), "cudaMemsetAsync");
  const ForwardMaps maps = maps_of(p);
  allow_smem(mha_kernel, kSmemBytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks_of(p));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = p.stream;
  check(cudaLaunchKernelEx(&config, mha_kernel, maps.q, maps.k, maps.v, maps.o, p.lse, p.heads, p.seq), "cudaLaunchKernelEx");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
