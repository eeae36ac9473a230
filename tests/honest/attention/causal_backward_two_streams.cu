// dK and dV on the call's stream, dQ beside them on another one, joined by events; row sums first, in kept scratch.
constexpr bool kCausal = true;
#include "attention_backward.cuh"
#include "side_stream.cuh"

namespace {

float* scratch = nullptr;
int64_t held = 0;
Side side;

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O, tvm::ffi::TensorView dO,
         tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  const Backward p = backward_of(Q, K, V, O, dO, L, dQ, dK, dV);
  if (p.rows > held) {
    check(cudaFree(scratch), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&scratch), 2 * p.rows * sizeof(float)), "scratch allocation");
    held = p.rows;
  }
  launch_prepare(p, scratch, p.stream);
  side.create();
  side.fork(p.stream);
  launch_dkdv(p, scratch, p.stream);
  launch_dq(p, scratch, side.stream);
  side.join(p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
