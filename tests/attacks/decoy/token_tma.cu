// A right generic GEMM behind one TMA load of a single box, which counts as a target instruction and brings in nothing that
// is used.
// Source: PTXBench's paper, the families of its indicator.
// Caught by: the useful share, which is that of matrix instructions.
#include "gemm.cuh"
#include "token_tma.cuh"

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  CUtensorMap map;
  const cuuint64_t sizes[2] = {kK, static_cast<cuuint64_t>(p.m)}, strides[1] = {kK * 2};
  const cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p.a, sizes, strides, box, steps,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "no tensor map";
  load_a_box<<<1, 32, 0, p.stream>>>(map);
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
