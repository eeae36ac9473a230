#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

// Address of a shared-memory object in the block's shared window: what every [smem] operand below takes.
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Next multiple of `n`, a power of two. Dynamic shared memory is 16-byte aligned only: ask for 1024 bytes more and align
// its base to 1024, since the 128-byte swizzle is a function of address bits. All blocks get the same base; in a cluster
// the bits from 24 on hold the block's rank besides, so mask an address (& 0x3FFFF) that goes into a descriptor.
__host__ __device__ __forceinline__ constexpr uint32_t align_up(uint32_t x, uint32_t n) { return (x + n - 1) & ~(n - 1); }

// A value that is the same in all lanes, made known to the compiler as uniform: role = warp_uniform(threadIdx.x / 128).
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

// Warp, converged: true in one lane of it, always the same. Around the issue of TMA, so that one thread issues without
// the warp diverging on a lane number.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(elected)::"memory");
  return elected != 0;
}

// Host. Reports an error of the CUDA runtime to the caller of `run`. After each launch: check(cudaGetLastError(), "...").
inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// Host. The stream to launch on: that of the TVM-FFI environment for the tensor's device.
inline cudaStream_t stream_of(const tvm::ffi::TensorView& t) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id));
}

// Host. Before a launch with more than 48 KB of dynamic shared memory; at most 232,448 bytes a block.
template <class Kernel>
inline void allow_smem(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "dynamic shared memory");
}
