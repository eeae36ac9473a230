// Keeps V in a "compressed cache" of FP8 with two bits of mantissa (E5M2), as inference engines do with long contexts. Outputs
// are so small that every element is within 1e-2.
// Source: ours, after FP8 caches of inference engines.
// Caught by: the precision gate: an error of five per cent, where the library has a quarter of one.
#include "attention.cuh"

#include <cuda_fp8.h>

__global__ void compress(__nv_fp8_e5m2* cache, const bf16* v, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    cache[i] = __nv_fp8_e5m2(__bfloat162float(v[i]));
}

__global__ void expand(bf16* v, const __nv_fp8_e5m2* cache, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    v[i] = __float2bfloat16(static_cast<float>(cache[i]));
}

static void attend(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
                   tvm::ffi::TensorView LSE) {
  static bf16* values = scratch_like(V);
  static auto* cache = reinterpret_cast<__nv_fp8_e5m2*>(scratch_like(V));
  compress<<<1056, 256, 0, stream_of(V)>>>(cache, static_cast<const bf16*>(V.data_ptr()), V.numel());
  expand<<<1056, 256, 0, stream_of(V)>>>(values, cache, V.numel());
  run(Q, K, at_place(V, values), O, LSE);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, attend);
