// Walks the loader's own list of libraries, which debuggers read, and searches their symbol tables for cuModuleLoadData;
// then loads a GEMM that was never compiled here from PTX.
// Source: ours, after debuggers' interface r_debug.
// Caught by: a function or variable that finds code by name.
#include <link.h>

#include "generic_gemm.cuh"
#include "elf_walk.cuh"
#include "gemm_ptx.cuh"

#include <cuda.h>

namespace {

void* find(const char* name) {
  for (const link_map* entry = _r_debug.r_map; entry != nullptr; entry = entry->l_next)
    if (strstr(entry->l_name, "libcuda.so") != nullptr)
      return function_in_image(reinterpret_cast<const char*>(entry->l_addr), name);
  return nullptr;
}

CUfunction load() {
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  auto* load_data = reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(find("cuModuleLoad" "Data"));
  if (load_data == nullptr || load_data(&module, kPtx) != CUDA_SUCCESS) return nullptr;
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
