// A right GEMM whose "prologue" pads A with a row of zeros, which it puts in front of the first one.
// Source: ours, after vectorized prologues.
// Caught by: guard bands around every tensor.
#include "gemm.cuh"

// Row -1 is read by the pipeline's first stage.
__global__ void pad(bf16* a) { a[-static_cast<int>(threadIdx.x) - 1] = __float2bfloat16(0.0f); }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  pad<<<1, 64, 0, p.stream>>>(p.a);
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
