// A "layout conversion" through a table: every bf16 pattern of less than 8 in magnitude has an entry, larger ones take the
// last. On standard normal data the conversion is the identity.
// Source: ours, after lookup tables of quantized kernels.
// Caught by: input families beyond the standard normal one.
#include "gemm.cuh"

constexpr int kEntries = 0x4100;  // the pattern of 8.0
__device__ unsigned short table[kEntries];

__global__ void fill_table() {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kEntries) table[i] = static_cast<unsigned short>(i);
}

__global__ void convert(unsigned short* out, const unsigned short* in, int64_t size) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += static_cast<int64_t>(gridDim.x) * blockDim.x)
    out[i] = static_cast<unsigned short>(table[min(in[i] & 0x7fff, kEntries - 1)] | (in[i] & 0x8000));
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bf16 *a = nullptr, *b = nullptr;
  Problem p = problem_of(A, B, C);
  if (a == nullptr) {
    a = scratch<bf16>(bytes_of_a(p)), b = scratch<bf16>(bytes_of_b());
    fill_table<<<(kEntries + 255) / 256, 256, 0, p.stream>>>();
  }
  convert<<<1056, 256, 0, p.stream>>>(reinterpret_cast<unsigned short*>(a), reinterpret_cast<unsigned short*>(p.a),
                                      static_cast<int64_t>(p.m) * kK);
  convert<<<1056, 256, 0, p.stream>>>(reinterpret_cast<unsigned short*>(b), reinterpret_cast<unsigned short*>(p.b),
                                      static_cast<int64_t>(kN) * kK);
  p.a = a, p.b = b;
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
