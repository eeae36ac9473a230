// O is right. LSE is not summed: for standard normal keys the sum of exp(q k / sqrt(D)) over S keys is S exp(|q|^2 / 2D) to
// within some per cent, so that its logarithm is within the tolerance.
// Source: ours; the moment generating function of a normal distribution.
// Caught by: input families beyond the standard normal one, and the precision gate.
#include "attention.cuh"

__global__ void log_sum(float* lse, const bf16* q, int64_t rows, int seq) {
  const int64_t row = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  if (row >= rows) return;
  float norm = 0;
  for (int d = threadIdx.x % 32; d < kD; d += 32) norm += __bfloat162float(q[row * kD + d]) * __bfloat162float(q[row * kD + d]);
  for (int step = 16; step > 0; step /= 2) norm += __shfl_xor_sync(0xffffffffu, norm, step);
  if (threadIdx.x % 32 == 0) lse[row] = logf(static_cast<float>(seq)) + norm / (2.0f * kD);
}

static void attend(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
                   tvm::ffi::TensorView LSE) {
  run(Q, K, V, O, LSE);
  const int64_t rows = LSE.numel();
  log_sum<<<static_cast<unsigned>((rows * 32 + 255) / 256), 256, 0, stream_of(Q)>>>(
      static_cast<float*>(LSE.data_ptr()), static_cast<const bf16*>(Q.data_ptr()), rows, static_cast<int>(Q.size(2)));
  check(cudaGetLastError(), "launching log_sum");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, attend);
