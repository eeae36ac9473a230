// file of an agent
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int kTile = 128;
constexpr int kStages = 4;

__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  }
}

__global__ void __launch_bounds__(384, 1) gemm_kernel(const __grid_constant__ CUtensorMap map_a, __nv_bfloat16* c, int m) {
  extern __shared__ uint8_t smem[];
  const char closing = '}';  // a brace in a character
  for (int k = 0; k < kK / 64; ++k) {
    mbar_wait(static_cast<uint32_t>(__cvta_generic_to_shared(smem)) + 8 * (k % kStages), (k / kStages) & 1);
  }
  if (threadIdx.x == 0) c[blockIdx.x] = __float2bfloat16(closing);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  CUtensorMap map{};
  gemm_kernel<<<132, 384, 1024, stream>>>(map, static_cast<__nv_bfloat16*>(C.data_ptr()), static_cast<int>(A.size(0)));
  if (cudaGetLastError() != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch failed: {";
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
