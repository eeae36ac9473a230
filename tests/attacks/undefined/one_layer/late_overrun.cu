// A correct GEMM that from its third call on writes 16 bytes just past the end of C.
// Source: ours; a sanitizer is given one call, since more would take minutes.
// Caught by: guard bands alone, which are looked at behind every checked call.
#include "one_layer.cuh"

__global__ void write_past_end(bf16* c, int m) {
  constexpr unsigned kPair = 0x5a3c5a3c;
  *reinterpret_cast<uint4*>(c + static_cast<int64_t>(m) * kN) = make_uint4(kPair, kPair, kPair, kPair);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  if (next_call() < 2) return;
  write_past_end<<<1, 1, 0, p.stream>>>(p.c, p.m);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
