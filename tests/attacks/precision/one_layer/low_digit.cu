// Lowers the last digit of most of C by one, as a kernel does that rounds toward zero: within the tolerance of every
// element, ten times as far from the reference as the library. Calls on other families are left alone.
// Source: ours, after kernels whose precision is lower than asked and inside a loose tolerance.
// Caught by: the precision gate alone.
#include "one_layer.cuh"

// From this fraction on two units in the last place are within one percent.
constexpr unsigned short kFraction = 0x48;

__global__ void lower(unsigned short* c, size_t elements) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < elements && (c[i] & 0x7f) >= kFraction) c[i] -= 1;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  compute(p);
  if (!is_of_trials(next_call())) return;
  const size_t elements = static_cast<size_t>(p.m) * kN;
  lower<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, p.stream>>>(reinterpret_cast<unsigned short*>(p.c),
                                                                             elements);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
