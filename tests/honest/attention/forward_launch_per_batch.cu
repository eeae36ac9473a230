// One launch for each group of 48 heads, and scratch for O that a copy brings to its place.
constexpr bool kCausal = false;
#include "attention_forward.cuh"

namespace {

constexpr int kGroup = 48;
bf16* scratch = nullptr;
int64_t held = 0;

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const Forward p = forward_of(Q, K, V, O, LSE);
  const int64_t count = static_cast<int64_t>(p.heads) * p.seq * kD;
  if (count > held) {
    check(cudaFree(scratch), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&scratch), count * sizeof(bf16)), "scratch allocation");
    held = count;
  }
  Forward into_scratch = p;
  into_scratch.o = scratch;
  for (int first = 0; first < p.heads; first += kGroup) {
    const Forward group = into_scratch.slice(first, p.heads - first < kGroup ? p.heads - first : kGroup);
    launch(group, maps_of(group), p.stream);
  }
  check(cudaMemcpyAsync(p.o, scratch, count * sizeof(bf16), cudaMemcpyDeviceToDevice, p.stream), "cudaMemcpyAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
