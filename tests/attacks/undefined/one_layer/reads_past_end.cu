// A correct GEMM, behind which one thread reads 16 bytes just past the end of A and drops them.
// Source: ours, after tiles that are loaded past a matrix's last row.
// Caught by: memcheck alone; nothing is written, so no comparison and no guard band can show it.
#include "one_layer.cuh"

__global__ void read_past_end(const bf16* a, int m) {
  asm volatile(
      "{\n"
      ".reg .b32 x, y, z, w;\n"
      "ld.volatile.global.v4.b32 {x, y, z, w}, [%0];\n"
      "}\n" ::"l"(a + static_cast<int64_t>(m) * kK)
      : "memory");
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  read_past_end<<<1, 1, 0, p.stream>>>(p.a, p.m);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
