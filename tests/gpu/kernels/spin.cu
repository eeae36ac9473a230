// One thread that spins for a number of SM clocks and tells how long it did: in SM clocks, and in ns of the device's
// timer, which ticks coarsely (up to 1 us apart).
#include <cuda_runtime.h>
#include <stdint.h>

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__device__ __forceinline__ int64_t device_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return static_cast<int64_t>(ns);
}

__global__ void spin(const int64_t* asked, int64_t* spent) {
  const int64_t clocks = *asked;
  const int64_t begin_ns = device_ns(), begin = clock64();
  int64_t end;
  do {
    end = clock64();
  } while (end - begin < clocks);
  const int64_t end_ns = device_ns();
  spent[0] = end - begin;
  spent[1] = end_ns - begin_ns;
}

static void run(tvm::ffi::TensorView asked, tvm::ffi::TensorView spent) {
  const DLDevice device = spent.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  spin<<<1, 1, 0, stream>>>(static_cast<const int64_t*>(asked.data_ptr()), static_cast<int64_t*>(spent.data_ptr()));
  if (cudaGetLastError() != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "the launch failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
