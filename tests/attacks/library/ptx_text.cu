// Loads a GEMM from PTX text, which the harness has neither compiled nor inspected, with cuModuleLoadData.
// Source: this project's list of threats (PTX blob of a library).
// Caught by: functions that load device code.
#include "generic_gemm.cuh"
#include "gemm_ptx.cuh"

#include <cuda.h>

namespace {

CUfunction load() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  if (cuModuleLoadData(&module, kPtx) != CUDA_SUCCESS) return nullptr;
  cuModuleGetFunction(&kernel, module, "_Z4gemmPK13__nv_bfloat16S1_PS_i");
  return kernel;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static CUfunction kernel = load();
  Problem p = problem_of(A, B, C);
  if (kernel == nullptr) TVM_FFI_THROW(RuntimeError) << "nothing was loaded";
  void* arguments[] = {&p.a, &p.b, &p.c, &p.m};
  cuLaunchKernel(kernel, kN / kPtxTile, p.m / kPtxTile, 1, 128, 1, 1, 0, p.stream, arguments, nullptr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
