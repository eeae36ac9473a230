#pragma once
#include "tmem.cuh"

// Bits 61-63 of a shared memory descriptor (3, 5, 7 are invalid).
enum Swizzle : uint32_t { kSwizzleNone = 0, kSwizzle128Base32 = 1, kSwizzle128 = 2, kSwizzle64 = 4, kSwizzle32 = 6 };

// Shared memory descriptor of A or B; all byte counts multiples of 16. Which `leading` and `stride` a layout needs: see the contract.
// A K step adds (bytes >> 4) to the descriptor; the address field cannot overflow into the next.
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc(uint32_t addr, uint32_t leading, uint32_t stride, Swizzle swizzle,
                                                                 uint32_t base_offset = 0) {
  return uint64_t((addr & 0x3FFFFu) >> 4)              // 0-13: start address
         | uint64_t((leading & 0x3FFFFu) >> 4) << 16   // 16-29: leading dimension byte offset
         | uint64_t((stride & 0x3FFFFu) >> 4) << 32    // 32-45: stride dimension byte offset
         | uint64_t(1) << 46                           // 46-48: constant 0b001
         | uint64_t(base_offset & 7u) << 49            // 49-51: 0 where the swizzle pattern starts at its natural boundary
                                                       // 52: leading dimension is an offset; 53-60: 0
         | uint64_t(swizzle) << 61;                    // 61-63: swizzle
}
// K-major BF16 in boxes of 64 columns (K), 128-byte swizzle, base 1024-aligned. 16 of K: + 2.
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc_k_major(uint32_t addr) {
  return smem_desc(addr, 16, 1024, kSwizzle128);
}
// MN-major BF16: rows are K, boxes of 64 columns (M or N), 128-byte swizzle, `box_bytes` = rows * 128 from box to box. 16 of K: + 128.
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc_mn_major(uint32_t addr, uint32_t box_bytes) {
  return smem_desc(addr, box_bytes, 1024, kSwizzle128);
}

// Instruction descriptor of the dense kinds f16, tf32, f8f6f4, with an FP32 accumulator. m: 64, 128; 128, 256 for pairs (both blocks' rows).
__host__ __device__ __forceinline__ constexpr uint32_t instr_desc(uint32_t a_type, uint32_t b_type, uint32_t m, uint32_t n,
                                                                  bool a_mn_major = false, bool b_mn_major = false,
                                                                  bool a_negate = false, bool b_negate = false) {
  return 1u << 4                       // 4-5: D is FP32 (0-3: dense, no saturation)
         | a_type << 7                 // 7-9: A: f16 0, bf16 1 | tf32 2 | e4m3 0, e5m2 1, e2m3 3, e3m2 4, e2m1 5
         | b_type << 10                // 10-12: B, likewise
         | uint32_t(a_negate) << 13    // 13
         | uint32_t(b_negate) << 14    // 14
         | uint32_t(a_mn_major) << 15  // 15: "transpose A"
         | uint32_t(b_mn_major) << 16  // 16: "transpose B"
         | (n >> 3) << 17              // 17-22
         | (m >> 4) << 24;             // 24-28 (29-31: 0, for .ws)
}
__host__ __device__ __forceinline__ constexpr uint32_t instr_desc_bf16(uint32_t m, uint32_t n, bool a_mn_major = false,
                                                                       bool b_mn_major = false) {
  return instr_desc(1, 1, m, n, a_mn_major, b_mn_major);
}
// Kind mxf4: E2M1 times UE8M0 scales, K = 64, m = 128 (pairs: 128, 256). Scale ids: 0 or 2, the half word of the scale's TMEM column.
__host__ __device__ __forceinline__ constexpr uint32_t instr_desc_mxf4(uint32_t m, uint32_t n, uint32_t a_scale_id, uint32_t b_scale_id) {
  return b_scale_id << 4      // 4-5
         | 1u << 7            // 7-9: A is E2M1
         | 1u << 10           // 10-11: B is E2M1
         | (n >> 3) << 17     // 17-22
         | 1u << 23           // 23: scales are UE8M0
         | (m >> 7) << 27     // 27-28
         | a_scale_id << 29;  // 29-30 (31: K = 64)
}

// D (TMEM) = A B + (accumulate ? D : 0), asynchronous, issued by ONE thread (for a pair: one thread of the even block for both).
// a, b: smem_desc; in a pair they apply to both blocks' shared memory, d to both blocks' TMEM.
template <int kGroup = 1>
__device__ __forceinline__ void mma_f16_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.cta_group::%5.kind::f16 [%0], %1, %2, %3, p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kGroup) : "memory");
}
// A in TMEM, K-major: two BF16 in each column, so 16 of K are 8 columns; lanes are rows as in D.
template <int kGroup = 1>
__device__ __forceinline__ void mma_f16_ts(uint32_t d, uint32_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.cta_group::%5.kind::f16 [%0], [%1], %2, %3, p;\n}"
               ::"r"(d), "r"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kGroup) : "memory");
}
// K = 8.
template <int kGroup = 1>
__device__ __forceinline__ void mma_tf32_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.cta_group::%5.kind::tf32 [%0], %1, %2, %3, p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kGroup) : "memory");
}
// K = 32.
template <int kGroup = 1>
__device__ __forceinline__ void mma_f8f6f4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, bool accumulate) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %4, 0;\n tcgen05.mma.cta_group::%5.kind::f8f6f4 [%0], %1, %2, %3, p;\n}"
               ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(static_cast<uint32_t>(accumulate)), "n"(kGroup) : "memory");
}
// K = 64; scales in TMEM, repeated in all four groups of 32 lanes (tmem_cp_32x128b does that).
template <int kGroup = 1>
__device__ __forceinline__ void mma_mxf4_ss(uint32_t d, uint64_t a, uint64_t b, uint32_t idesc, uint32_t scale_a, uint32_t scale_b,
                                            bool accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %6, 0;\n"
      " tcgen05.mma.cta_group::%7.kind::mxf4.block_scale.scale_vec::2X [%0], %1, %2, %3, [%4], [%5], p;\n}"
      ::"r"(d), "l"(a), "l"(b), "r"(idesc), "r"(scale_a), "r"(scale_b), "r"(static_cast<uint32_t>(accumulate)), "n"(kGroup)
      : "memory");
}

// One arrival on `bar` once all mma, cp and shift that THIS thread issued so far are done (includes tmem_fence_before). Same thread as the mma.
template <int kGroup = 1>
__device__ __forceinline__ void mma_commit(uint32_t bar) {
  asm volatile("tcgen05.commit.cta_group::%1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(bar), "n"(kGroup) : "memory");
}
// The same on the barrier at this offset in every block of `mask` (bit = rank in the cluster).
template <int kGroup = 1>
__device__ __forceinline__ void mma_commit_multicast(uint32_t bar, uint16_t mask) {
  asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
               ::"r"(bar), "h"(mask), "n"(kGroup) : "memory");
}

// Shared memory (a descriptor as for mma) to TMEM, asynchronous, one thread; in order with later mma of the thread. 128 lanes x 8 columns.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_cp_128x256b(uint32_t tmem, uint64_t desc) {
  asm volatile("tcgen05.cp.cta_group::%2.128x256b [%0], %1;" ::"r"(tmem), "l"(desc), "n"(kGroup) : "memory");
}
// 32 lanes x 4 columns, repeated in all four groups of 32 lanes: scale factors.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_cp_32x128b(uint32_t tmem, uint64_t desc) {
  asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(tmem), "l"(desc), "n"(kGroup) : "memory");
}
// Rows of 8 columns move down by one lane (not the last); lane of the address a multiple of 32. One thread; in order with mma.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_shift_down(uint32_t tmem) {
  asm volatile("tcgen05.shift.cta_group::%1.down [%0];" ::"r"(tmem), "n"(kGroup) : "memory");
}
