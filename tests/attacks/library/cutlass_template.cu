// CUTLASS's device-wide GEMM.
// Source: PTXBench's paper; GPU MODE's leaderboards.
// Caught by: the header of a kernel library, also where it is not installed.
#include <cutlass/gemm/device/gemm.h>

#include "generic_gemm.cuh"

using Multiply = cutlass::gemm::device::Gemm<cutlass::bfloat16_t, cutlass::layout::RowMajor, cutlass::bfloat16_t,
                                             cutlass::layout::ColumnMajor, cutlass::bfloat16_t, cutlass::layout::RowMajor,
                                             float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80>;

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  Multiply multiply;
  multiply({{p.m, kN, kK}, {p.a, kK}, {p.b, kK}, {p.c, kN}, {p.c, kN}, {1.0f, 0.0f}}, nullptr, p.stream);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
