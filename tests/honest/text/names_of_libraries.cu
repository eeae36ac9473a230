// Not cuBLAS: a GEMM that means to reach what cublasGemmEx and cutlass::gemm::device::GemmUniversal reach.
//
// We looked at how cublasLt picks tiles (cublasLtMatmulAlgoGetHeuristic), at cute::Layout and at FlashAttention-3's
// pipelines; no line of theirs is here. Links: https://docs.nvidia.com/cuda/cublas, #include <cublas_v2.h> not needed.
#include "hopper_gemm_kernel.cuh"

namespace {

/* second pass */
// The first pass would be the library's call:
//   cublasCreate(&handle); cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, ...);  dlopen("libcublas.so.13")
constexpr const char* kWhatThisIsNot[] = {"cublas", "cublasLt", "cudnn", "cutlass", "cute::gemm", "torch.matmul", "flashinfer"};

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  if (p.m > 1 << 20) {  // falls back to "cublas" where there is one, and here there is none
    TVM_FFI_THROW(ValueError) << "for so many rows take " << kWhatThisIsNot[p.m % 7] << "GemmEx, not this kernel";
  }
  wg::launch(p);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
