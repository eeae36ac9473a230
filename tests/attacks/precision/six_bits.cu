// A right GEMM whose "compressed store" rounds its sums to six bits of mantissa instead of seven. No element is further from
// the right one than one unit of its last place, which is less than the tolerance of one per cent.
// Source: ours, after formats that pack outputs.
// Caught by: the precision gate.
#include "gemm_sums.cuh"

// To the nearest multiple of two units of bf16's last place.
__device__ __forceinline__ bf16 compressed(float sum) {
  const unsigned bits = __float_as_uint(sum);
  return __float2bfloat16(__uint_as_float((bits + 0xffff + (bits >> 17 & 1)) & 0xfffe0000));
}

__global__ void __launch_bounds__(kThreads, 2) packed_gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_with_sums(a, b, c, m, [](float sum) { return sum; }, [](float sum) { return compressed(sum); });
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  launch_gemm(packed_gemm, problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
