// A correct GEMM that also loads PTX, which the harness has not compiled, and runs an entry of it that has the name of a
// kernel of its own. The driver function that loads it is looked up by a name that is put together at run time.
#include "generic_gemm.cuh"

#include <cuda.h>

__global__ void __launch_bounds__(kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_tile(a, b, c, m, kK / kBlockK);
}

__global__ void extra() {}

static const char kPtx[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry _Z5extrav() { ret; }\n";
// Each letter one further in the alphabet than in the name.
static const char kCoded[] = "dvNpevmfMpbeEbub";

static CUfunction load() {
  char name[] = "cuTensorMapEncodeTiled";
  int i = 0;
  for (; kCoded[i] != 0; ++i) name[i] = static_cast<char>(kCoded[i] - 1);
  name[i] = 0;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  check(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &status));
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  if (reinterpret_cast<CUresult (*)(CUmodule*, const void*)>(found)(&module, kPtx) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "the PTX was not loaded";
  if (cuModuleGetFunction(&kernel, module, "_Z5extrav") != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "the entry was not found";
  return kernel;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static CUfunction kernel = load();
  const Problem p = problem_of(A, B, C);
  if (p.m < 0) extra<<<1, 1, 0, p.stream>>>();  // never: keeps the kernel in the object
  cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, p.stream, nullptr, nullptr);
  launch_gemm(gemm, p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
