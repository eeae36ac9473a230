// Scratch for the row sums is allocated and freed on the stream in every call.
constexpr bool kCausal = false;
#include "attention_backward.cuh"

namespace {

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O, tvm::ffi::TensorView dO,
         tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  const Backward p = backward_of(Q, K, V, O, dO, L, dQ, dK, dV);
  float* scratch = nullptr;
  check(cudaMallocAsync(reinterpret_cast<void**>(&scratch), 2 * p.rows * sizeof(float), p.stream), "cudaMallocAsync");
  launch_prepare(p, scratch, p.stream);
  launch_dkdv(p, scratch, p.stream);
  launch_dq(p, scratch, p.stream);
  check(cudaFreeAsync(scratch, p.stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
