// The reference solution of non-causal attention, and views of scratch memory to call it with.
#include "reference/mha_with_lse_d128.cuh"

using bf16 = __nv_bfloat16;

// A tensor of the same shape elsewhere.
inline tvm::ffi::TensorView at_place(const tvm::ffi::TensorView& like, void* data) {
  DLTensor tensor{};
  tensor.data = data;
  tensor.device = like.device();
  tensor.ndim = like.ndim();
  tensor.dtype = like.dtype();
  tensor.shape = const_cast<int64_t*>(like.shape().data());
  tensor.strides = const_cast<int64_t*>(like.strides().data());
  return tvm::ffi::TensorView(&tensor);
}

inline bf16* scratch_like(const tvm::ffi::TensorView& tensor) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, tensor.numel() * sizeof(bf16)), "scratch");
  return static_cast<bf16*>(memory);
}
