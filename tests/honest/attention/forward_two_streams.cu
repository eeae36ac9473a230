// Half of the heads on the call's stream, half on a second one that is joined before the call returns.
constexpr bool kCausal = false;
#include "attention_forward.cuh"
#include "side_stream.cuh"

namespace {

Side side;

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const Forward p = forward_of(Q, K, V, O, LSE);
  const int first = p.heads / 2;
  const Forward upper = p.slice(0, first), lower = p.slice(first, p.heads - first);
  side.create();
  side.fork(p.stream);
  if (first > 0) launch(upper, maps_of(upper), p.stream);
  launch(lower, maps_of(lower), side.stream);
  side.join(p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
