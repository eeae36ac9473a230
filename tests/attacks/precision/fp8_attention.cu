// Attention over Q, K and V that were rounded to FP8 (E4M3). Outputs are so small that every element is within 1e-2.
// Source: this project's list of threats; SageAttention and FlashAttention-3 show what FP8 attention gains.
// Caught by: the precision gate: an error of several per cent, where the library has a quarter of one.
#include "attention.cuh"

#include <cuda_fp8.h>

__global__ void round_to_fp8(bf16* out, const bf16* in, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = __float2bfloat16(static_cast<float>(__nv_fp8_e4m3(__bfloat162float(in[i]))));
}

static tvm::ffi::TensorView rounded(const tvm::ffi::TensorView& in, bf16* out) {
  round_to_fp8<<<1056, 256, 0, stream_of(in)>>>(out, static_cast<const bf16*>(in.data_ptr()), in.numel());
  return at_place(in, out);
}

static void attend(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
                   tvm::ffi::TensorView LSE) {
  static bf16 *q = scratch_like(Q), *k = scratch_like(K), *v = scratch_like(V);
  run(rounded(Q, q), rounded(K, k), rounded(V, v), O, LSE);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, attend);
