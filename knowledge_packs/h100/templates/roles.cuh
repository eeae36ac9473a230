#pragma once
#include "base.cuh"

// Hardware barrier `id` (1..15; 0 is __syncthreads) of `threads` threads, a multiple of 32, those that only arrive
// included. All threads of a warp call it. sync waits for all; arrive does not wait.
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Warpgroup: all four warps, the same count: 24, 32, ... 256. The kernel needs __launch_bounds__(threads, 1), else ptxas
// ignores them. A block starts with (registers of the launch) x threads; inc waits until dec has freed enough.
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
