// Tensor maps are remembered by pointer; the mask is compiled in, and nothing else is remembered.
constexpr bool kCausal = true;
#include "attention_forward.cuh"
#include <map>
#include <tuple>

namespace {

std::map<std::tuple<const void*, const void*, const void*, void*, int, int>, ForwardMaps> memo;

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const Forward p = forward_of(Q, K, V, O, LSE);
  auto [entry, fresh] = memo.try_emplace({p.q, p.k, p.v, p.o, p.heads, p.seq});
  if (fresh) entry->second = maps_of(p);
  launch(p, entry->second, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
