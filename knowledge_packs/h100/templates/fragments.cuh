#pragma once
#include "base.cuh"

// Where TMA with a swizzle of kBytes (32, 64, 128; 16: none) puts the byte at `offset` of a box whose rows are kBytes wide;
// box and offset counted from an address that is a multiple of 8 * kBytes. Moves 16-byte chunks within a row:
// for 128, chunk c of row r lies at chunk c ^ (r % 8). Its own inverse.
template <int kBytes = 128>
__host__ __device__ __forceinline__ constexpr uint32_t swizzle(uint32_t offset) {
  return offset ^ ((offset >> 3) & (kBytes - 16));
}

// Two values to one register, `low` in bits 0-15, rounded to nearest even.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint32_t pack_f16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
// Accumulators of 64 x N -> A operands of N / 16 products: that of step i is a + 4 * i for wgmma_rs.
template <int kN>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[kN / 2], const float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) a[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
}

// 2^x and log2(x), 2 ulp, subnormals as 0: exp(x) = exp2_fast(x * 1.4426950408889634f), ln(x) = log2_fast(x) *
// 0.6931471805599453f. exp2_fast(-INFINITY) is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_fast(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Over the four lanes that share a row of accumulators, and over a warp; every lane gets the result. Warp, converged.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, m));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(0xffffffffu, x, m);
  return x;
}

// Warp. Matrices of 8 x 8 16-bit elements between shared memory and registers. Lane 8 i + r gives the address of row r of
// matrix i (16 bytes, 16-byte aligned). Register i of lane l holds row l / 4, columns 2 (l % 4) and + 1 of matrix i;
// with _trans, of the transposed matrix. _x2 takes addresses from lanes 0 .. 15.
__device__ __forceinline__ void stmatrix_x2(uint32_t addr, uint32_t r0, uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(addr), "r"(r0), "r"(r1) : "memory");
}
__device__ __forceinline__ void stmatrix_x4(uint32_t addr, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r0), "r"(r1), "r"(r2),
               "r"(r3)
               : "memory");
}
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t addr, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(addr) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t addr) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(addr) : "memory");
}

// Warpgroup: 64 x 64 accumulators d[0 .. 31] as BF16 into a box of 64 rows of 128 bytes with the 128-byte swizzle, ready for
// tma_store. `box`: 8192 bytes, 1024-aligned; `t`: thread of the warpgroup. Conflict-free. Then fence_async_smem(),
// a barrier of the warpgroup, and one thread stores.
__device__ __forceinline__ void store_box(uint32_t box, const float* d, int t) {
  const int row = t / 32 * 16 + t % 16;  // lanes 8 i .. 8 i + 7: rows of matrix i; 0, 1: upper, lower half; 2, 3: 8 columns on
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float* v = d + 4 * j;
    stmatrix_x4(box + swizzle(row * 128 + (j + t % 32 / 16) * 16), pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
}
// A warpgroup's 64 x N accumulators as BF16 straight to row-major global memory at `out` (its tile's first element), `pitch`
// elements from row to row; 4-byte stores: for small outputs and for edges (`rows` valid ones).
template <int kN>
__device__ __forceinline__ void store_rows(__nv_bfloat16* out, int64_t pitch, int rows, const float (&d)[kN], int t) {
  const int row = t / 32 * 16 + t % 32 / 4;
#pragma unroll
  for (int i = 0; i < kN; i += 2) {
    const int r = row + i / 2 % 2 * 8, c = i / 4 * 8 + t % 4 * 2;
    if (r < rows) *reinterpret_cast<uint32_t*>(out + r * pitch + c) = pack_bf16(d[i], d[i + 1]);
  }
}
