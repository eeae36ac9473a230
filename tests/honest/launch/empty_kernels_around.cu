// Trivial kernels before and behind the product, as tools put them for markers: one does nothing, one writes a word of its
// own.
#include "hopper_gemm_kernel.cuh"

namespace {

__device__ unsigned epoch;

__global__ void nothing() {}
__global__ void mark() { ++epoch; }

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  nothing<<<1, 32, 0, p.stream>>>();
  wg::launch(p);
  mark<<<1, 1, 0, p.stream>>>();
  check(cudaGetLastError(), "launching the markers");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
