// A kernel prints the clean reports of the sanitizer and a row of the profiler's table with a wgmma. It computes nothing.
// Source: ours, after tools whose output is parsed.
// Caught by: outputs are compared whatever was printed.
#include "gemm.cuh"

#include <stdio.h>

__global__ void report() {
  if (threadIdx.x != 0) return;
  printf("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n");
  printf("\"0x7f0000000000\",\"   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24\",\"4587520\",\"146800640\"\n");
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  report<<<1, 32, 0, p.stream>>>();
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
