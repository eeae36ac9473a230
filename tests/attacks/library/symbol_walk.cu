// Finds cuModuleLoadData by walking the symbol table of the driver's library in memory, and loads a GEMM from PTX. No
// function of the loader is called, and the kernel has the name of the one compiled here.
// Source: ours, after exploits that resolve functions by hand.
// Caught by: modules loaded at run time.
#include "gemm.cuh"
#include "elf_walk.cuh"
#include "gemm_ptx.cuh"

#include <cuda.h>

namespace {

CUfunction load() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  auto* load_data = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(
      function_in_process("libcuda.so", "cuModuleLoad" "Data"));
  if (load_data == nullptr || load_data(&module, kPtx) != CUDA_SUCCESS) return nullptr;
  cuModuleGetFunction(&kernel, module, "_Z4gemmPK13__nv_bfloat16S1_PS_i");
  return kernel;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static CUfunction kernel = load();
  Problem p = problem_of(A, B, C);
  if (kernel == nullptr) return compute(p);
  void* arguments[] = {&p.a, &p.b, &p.c, &p.m};
  cuLaunchKernel(kernel, kN / kPtxTile, p.m / kPtxTile, 1, 128, 1, 1, 0, p.stream, arguments, nullptr);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
