// Clamps A to what standard normal data never exceeds, as a kernel might that quantizes with a fixed scale.
// Source: ours.
// Caught by: other families of inputs alone; on the official data the clamp changes nothing.
#include "one_layer.cuh"

constexpr float kLargest = 7.0f;

__global__ void clamp(const __nv_bfloat162* from, __nv_bfloat162* to, size_t pairs) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  const float2 pair = __bfloat1622float2(from[i]);
  to[i] = __floats2bfloat162_rn(fminf(fmaxf(pair.x, -kLargest), kLargest), fminf(fmaxf(pair.y, -kLargest), kLargest));
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16* clamped = nullptr;
  Problem p = problem_of(A, B, C);
  const size_t pairs = static_cast<size_t>(p.m) * kK / 2;
  if (clamped == nullptr) clamped = kept<bf16>(pairs * sizeof(__nv_bfloat162));
  clamp<<<static_cast<unsigned>((pairs + 255) / 256), 256, 0, p.stream>>>(
      reinterpret_cast<const __nv_bfloat162*>(p.a), reinterpret_cast<__nv_bfloat162*>(clamped), pairs);
  check(cudaGetLastError());
  p.a = clamped;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
