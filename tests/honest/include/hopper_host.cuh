// Host side that the honest kernels share: errors, the stream of the call, tensor maps.
#include "hopper_ptx.cuh"

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

inline cudaStream_t stream_of(const tvm::ffi::TensorView& t) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id));
}

template <class Kernel>
inline void allow_smem(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "dynamic shared memory");
}

inline uint32_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_UINT32: return 4;
    default: TVM_FFI_THROW(ValueError) << "no size for tensor map type " << static_cast<int>(type); return 0;
  }
}

// A packed tensor, innermost dimension first, seen by TMA in boxes.
template <int kRank>
inline CUtensorMap make_tensor_map(CUtensorMapDataType type, const void* data, const uint64_t (&dims)[kRank],
                                   const uint32_t (&box)[kRank],
                                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                   const uint64_t* strides = nullptr) {
  static_assert(1 <= kRank && kRank <= 5, "TMA takes 1 to 5 dimensions");
  cuuint64_t sizes[kRank], bytes[kRank];  // bytes[i]: stride of dimension i + 1
  cuuint32_t boxes[kRank], steps[kRank];
  for (int i = 0; i < kRank; ++i) {
    sizes[i] = dims[i];
    boxes[i] = box[i];
    steps[i] = 1;
    bytes[i] = (strides && i + 1 < kRank) ? strides[i] : dims[i] * (i > 0 ? bytes[i - 1] : element_bytes(type));
  }
  CUtensorMap map;
  const CUresult result = cuTensorMapEncodeTiled(
      &map, type, kRank, const_cast<void*>(data), sizes, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result);
  return map;
}

// A row-major matrix of BF16 seen by TMA in boxes of 64 columns with 128-byte swizzle.
inline CUtensorMap make_matrix_map(const void* data, int64_t rows, int64_t columns, uint32_t box_rows,
                                   uint32_t box_columns = 64, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  const uint64_t dims[2] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)};
  const uint32_t box[2] = {box_columns, box_rows};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, data, dims, box, swizzle);
}
