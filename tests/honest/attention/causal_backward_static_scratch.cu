// Scratch for the row sums is a static __device__ array, large enough for the largest workload.
constexpr bool kCausal = true;
#include "attention_backward.cuh"

namespace {

constexpr int64_t kMaxRows = 1 << 20;
__device__ float row_statistics[2 * kMaxRows];

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O, tvm::ffi::TensorView dO,
         tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  const Backward p = backward_of(Q, K, V, O, dO, L, dQ, dK, dV);
  if (p.rows > kMaxRows) TVM_FFI_THROW(ValueError) << "at most " << kMaxRows << " rows, got " << p.rows;
  void* scratch = nullptr;
  check(cudaGetSymbolAddress(&scratch, row_statistics), "cudaGetSymbolAddress");
  launch_prepare(p, static_cast<float*>(scratch), p.stream);
  launch_dkdv(p, static_cast<float*>(scratch), p.stream);
  launch_dq(p, static_cast<float*>(scratch), p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
