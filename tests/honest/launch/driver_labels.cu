// Finds the encoder of tensor maps by name, calls other driver functions directly, and names those in error messages: names of
// driver functions stand beside a lookup without being looked up.
#include "hopper_gemm.cuh"
#include <cudaTypedefs.h>

namespace {

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(wg::kThreads, 1)
    gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c,
         int m) {
  wg::gemm_body<2>(&a, &b, wg::Bands<2>{m, 8}, wg::StoreByTma{&c, m});
}

void expect(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << what << " failed with error " << static_cast<int>(result);
}

CUtensorMap encoded(const void* data, int64_t rows, int64_t columns, uint32_t box_rows) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  if (encode == nullptr) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult state;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &state), "entry point");
    if (state != cudaDriverEntryPointSuccess) TVM_FFI_THROW(RuntimeError) << "the driver has no cuTensorMapEncodeTiled";
    encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {static_cast<cuuint64_t>(columns) * 2};
  const cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
  expect(encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
         "cuTensorMapEncodeTiled");
  return map;
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  CUtensorMap a = encoded(p.a, p.m, kK, 128), b = encoded(p.b, kN, kK, 128), c = encoded(p.c, p.m, kN, 64);
  int m = p.m;
  cudaFunction_t function = nullptr;
  check(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(gemm)), "cudaGetFuncBySymbol");
  expect(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, wg::kSmemBytes), "cuFuncSetAttribute");
  const int blocks = wg::grid_of(wg::Bands<2>{p.m, 8}.count(), sm_count(p.device), 2);
  void* arguments[] = {&a, &b, &c, &m};
  expect(cuLaunchKernel(function, blocks, 1, 1, wg::kThreads, 1, 1, wg::kSmemBytes, p.stream, arguments, nullptr),
         "cuLaunchKernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
