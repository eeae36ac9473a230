// Takes a function that the host process registered with TVM-FFI, a library's GEMM, and calls it.
// Source: this project's list of threats (calling FlashInfer through the host process).
// Caught by: calls into the host process.
#include "generic_gemm.cuh"

#include <tvm/ffi/function.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static tvm::ffi::Function multiply = tvm::ffi::Function::GetGlobalRequired("flashinfer.gemm.bf16");
  multiply(A, B, C);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
