// A correct GEMM, behind which one thread changes the first element of A.
// Source: ours, after candidates that rewrite inputs until a reference computed later agrees.
// Caught by: the comparison of the inputs alone; C is right for what was given.
#include "one_layer.cuh"

__global__ void change(bf16* a) { a[0] = __float2bfloat16(__bfloat162float(a[0]) + 1.0f); }

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  change<<<1, 1, 0, p.stream>>>(p.a);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
