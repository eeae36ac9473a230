// Two paths by shape: the target path for large M, a generic one below. Which one runs follows from the arguments alone.
#include "hopper_gemm_kernel.cuh"
#include "tile_gemm.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  if (p.m >= 1024) wg::launch(p);
  else mma::launch(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
