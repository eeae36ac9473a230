// Paged decoding of grouped-query attention as plainly as it can be written: one block for each sequence and query head.
// An honest kernel that takes scalars and index inputs; nothing about it is fast.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kDim = 128;  // const axes
constexpr int kHeads = 24;
constexpr int kKvHeads = 8;

__device__ float block_sum(float value, float* partial) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
  __syncthreads();
  value = partial[0] + partial[1] + partial[2] + partial[3];
  __syncthreads();
  return value;
}

// One thread for each element of the head; keys one after the other, with a running maximum.
__global__ void __launch_bounds__(kDim) decode(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
                                               const int* indptr, const int* indices, float scale, __nv_bfloat16* out,
                                               float* lse) {
  __shared__ float partial[kDim / 32];
  const int sequence = blockIdx.x / kHeads, head = blockIdx.x % kHeads, kv_head = head / (kHeads / kKvHeads);
  const float query = __bfloat162float(q[int64_t(blockIdx.x) * kDim + threadIdx.x]) * scale;
  float most = -INFINITY, total = 0.f, sum = 0.f;
  for (int place = indptr[sequence]; place < indptr[sequence + 1]; ++place) {
    const int64_t row = (int64_t(indices[place]) * kKvHeads + kv_head) * kDim + threadIdx.x;
    const float score = block_sum(query * __bfloat162float(k[row]), partial);
    const float next = fmaxf(most, score), kept = expf(most - next), weight = expf(score - next);
    total = total * kept + weight;
    sum = sum * kept + weight * __bfloat162float(v[row]);
    most = next;
  }
  out[int64_t(blockIdx.x) * kDim + threadIdx.x] = __float2bfloat16(total > 0.f ? sum / total : 0.f);
  if (threadIdx.x == 0) lse[blockIdx.x] = (most + logf(total)) * 1.4426950408889634f;  // base 2
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k_cache, tvm::ffi::TensorView v_cache,
         tvm::ffi::TensorView kv_indptr, tvm::ffi::TensorView kv_indices, double sm_scale, tvm::ffi::TensorView output,
         tvm::ffi::TensorView lse) {
  if (q.size(1) != kHeads || q.size(2) != kDim) TVM_FFI_THROW(RuntimeError) << "expected q[batch, 24, 128]";
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  decode<<<static_cast<unsigned>(q.size(0) * kHeads), kDim, 0, stream>>>(
      static_cast<const __nv_bfloat16*>(q.data_ptr()), static_cast<const __nv_bfloat16*>(k_cache.data_ptr()),
      static_cast<const __nv_bfloat16*>(v_cache.data_ptr()), static_cast<const int*>(kv_indptr.data_ptr()),
      static_cast<const int*>(kv_indices.data_ptr()), static_cast<float>(sm_scale),
      static_cast<__nv_bfloat16*>(output.data_ptr()), static_cast<float*>(lse.data_ptr()));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching decode: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
