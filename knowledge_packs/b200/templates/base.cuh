#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

// Address of shared memory as the 32-bit operand of every wrapper here. Valid as .shared::cta, and as .shared::cluster for the own block.
__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// True in exactly one lane; all 32 lanes call it, converged. Call it once and keep the branch: commit must come from the thread that issued.
// `if (warp == w && elect_one())` compiles to plain issues; under `threadIdx.x == 0` each tcgen05 issue costs an ELECT and a branch.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xFFFFFFFF;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(elected)::"memory");
  return elected != 0;
}

// Warp number in the block, known to be uniform to the compiler. Call it converged.
__device__ __forceinline__ int warp_index() { return __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) >> 5, 0); }

// Hardware barrier 1..15 over `threads` (a multiple of 32). named_arrive does not wait.
__device__ __forceinline__ void named_sync(int id, int threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int id, int threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Changes the register budget of the calling warp; all warps of a warpgroup call it, converged, with the same multiple of 8 in 24..256.
// Ignored by ptxas without __launch_bounds__. The sum over all warps stays within what the launch got.
template <int kRegisters>
__device__ __forceinline__ void registers_release() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}

// Two BF16 in a register, round to nearest even; `low` in bits 0-15, where the lower index belongs.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// 2^x on the 16-per-clock unit; -infinity gives 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x on the FMA units: floor by adding 1.5 * 2^23 rounded down, cubic for the fraction (relative error 8.6e-5, computed; BF16 has 3.9e-3
// between neighbours), exponent added as an integer. For x < 127; clamped at -127, which gives 0.
__device__ __forceinline__ float exp2_poly(float x) {
  x = fmaxf(x, -127.0f);
  const float t = __fadd_rd(x, 12582912.0f), f = x - (t - 12582912.0f);
  const float p = fmaf(fmaf(fmaf(0.07706704f, f, 0.227644995f), f, 0.695116758f), f, 1.0f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(t) << 23));
}

// Two FP32 operations in one instruction.
__device__ __forceinline__ float2 fma2(float2 a, float2 b, float2 c) {
  float2 d;
  asm("{\n .reg .b64 a, b, c, d;\n mov.b64 a, {%2, %3};\n mov.b64 b, {%4, %5};\n mov.b64 c, {%6, %7};\n"
      " fma.rn.f32x2 d, a, b, c;\n mov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y) : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y), "f"(c.x), "f"(c.y));
  return d;
}
__device__ __forceinline__ float2 mul2(float2 a, float2 b) {
  float2 d;
  asm("{\n .reg .b64 a, b, d;\n mov.b64 a, {%2, %3};\n mov.b64 b, {%4, %5};\n mul.rn.f32x2 d, a, b;\n mov.b64 {%0, %1}, d;\n}"
      : "=f"(d.x), "=f"(d.y) : "f"(a.x), "f"(a.y), "f"(b.x), "f"(b.y));
  return d;
}

// Maximum of three in one instruction.
__device__ __forceinline__ float max3(float a, float b, float c) {
  float d;
  asm("max.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}

// 16 bytes to shared memory, address a multiple of 16.
__device__ __forceinline__ void st_shared_v4(uint32_t addr, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Byte offset in a 128-byte-swizzled box whose base is a multiple of 1024: offset = row * 128 + byte in the row.
__host__ __device__ __forceinline__ constexpr uint32_t swizzle_128b(uint32_t offset) { return offset ^ ((offset >> 3) & 0x70u); }
