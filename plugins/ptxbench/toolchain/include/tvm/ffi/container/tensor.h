// Light TVM-FFI, tensors: views of memory that the caller owns. See tvm_ffi.h.
#ifndef PTXBENCH_LIGHT_TVM_FFI_TENSOR_H_
#define PTXBENCH_LIGHT_TVM_FFI_TENSOR_H_

#include <tvm/ffi/error.h>

#include <cstddef>
#include <cstdint>

namespace tvm::ffi {

/// A shape or strides that someone else owns.
class ShapeView {
 public:
  ShapeView() = default;
  ShapeView(const int64_t* data, size_t size) : data_(data), size_(size) {}

  const int64_t* data() const { return data_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  int64_t operator[](size_t index) const { return data_[index]; }
  int64_t front() const { return at(0); }
  int64_t back() const { return at(size_ - 1); }

  int64_t at(size_t index) const {
    if (index >= size_) TVM_FFI_THROW(IndexError) << "indexing " << index << " on a Shape of size " << size_;
    return data_[index];
  }

  int64_t Product() const {
    int64_t product = 1;
    for (size_t i = 0; i < size_; ++i) product *= data_[i];
    return product;
  }

 private:
  const int64_t* data_ = nullptr;
  size_t size_ = 0;
};

/// Bytes of `numel` packed elements.
inline size_t GetDataSize(size_t numel, DLDataType dtype) {
  return static_cast<size_t>((static_cast<uint64_t>(numel) * dtype.bits * dtype.lanes + 7) / 8);
}

/// Row-major and dense; axes of extent 1 and empty tensors never break it.
inline bool IsContiguous(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  int64_t dense = 1;
  bool matches = true;
  for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
    const int64_t extent = tensor.shape[axis];
    if (extent == 0) return true;
    if (extent != 1 && tensor.strides[axis] != dense) matches = false;
    dense *= extent;
  }
  return matches;
}

/// A tensor that someone else owns.
class TensorView {
 public:
  TensorView(const DLTensor* tensor) {
    TVM_FFI_ICHECK(tensor != nullptr);
    tensor_ = *tensor;
  }

  void* data_ptr() const { return tensor_.data; }
  DLDevice device() const { return tensor_.device; }
  int32_t ndim() const { return tensor_.ndim; }
  int32_t dim() const { return tensor_.ndim; }
  DLDataType dtype() const { return tensor_.dtype; }
  uint64_t byte_offset() const { return tensor_.byte_offset; }
  ShapeView shape() const { return ShapeView(tensor_.shape, static_cast<size_t>(tensor_.ndim)); }
  ShapeView sizes() const { return shape(); }
  int64_t numel() const { return shape().Product(); }
  bool IsContiguous() const { return ::tvm::ffi::IsContiguous(tensor_); }
  bool is_contiguous() const { return IsContiguous(); }
  int64_t size(int64_t index) const { return tensor_.shape[axis(index)]; }

  ShapeView strides() const {
    TVM_FFI_ICHECK(tensor_.strides != nullptr || tensor_.ndim == 0);
    return ShapeView(tensor_.strides, static_cast<size_t>(tensor_.ndim));
  }

  int64_t stride(int64_t index) const {
    const int64_t position = axis(index);
    TVM_FFI_ICHECK(tensor_.strides != nullptr);
    return tensor_.strides[position];
  }

 private:
  int64_t axis(int64_t index) const {
    const int64_t position = index >= 0 ? index : tensor_.ndim + index;
    if (position < 0 || position >= tensor_.ndim) {
      TVM_FFI_THROW(IndexError) << "Index " << index << " out of bounds for tensor with " << tensor_.ndim
                                << " dimensions";
    }
    return position;
  }

  DLTensor tensor_;
};

inline size_t GetDataSize(const TensorView& tensor) {
  return GetDataSize(static_cast<size_t>(tensor.numel()), tensor.dtype());
}

}  // namespace tvm::ffi

inline bool operator==(const DLDataType& left, const DLDataType& right) {
  return left.code == right.code && left.bits == right.bits && left.lanes == right.lanes;
}
inline bool operator!=(const DLDataType& left, const DLDataType& right) { return !(left == right); }

#endif  // PTXBENCH_LIGHT_TVM_FFI_TENSOR_H_
