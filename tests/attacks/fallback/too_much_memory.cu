// Tries a kernel with wgmma first. It asks for more shared memory than a block may have, so the launch always fails, and
// the generic kernel takes over in silence.
// Source: PTXBench's paper, fallback paths.
// Caught by: the indicator counts what executes on the evaluated workload. The result is right and may be scored as generic.
#include "gemm.cuh"
#include "one_wgmma.cuh"

__global__ void __launch_bounds__(128) wgmma_gemm(float* out) {
  extern __shared__ __align__(128) unsigned char operands[];
  one_wgmma(out, operands);
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  constexpr int kFastSmem = 512 << 10;
  cudaFuncSetAttribute(wgmma_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kFastSmem);
  wgmma_gemm<<<p.m / 128, 128, kFastSmem, p.stream>>>(reinterpret_cast<float*>(p.c));
  if (cudaGetLastError() != cudaSuccess) compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
