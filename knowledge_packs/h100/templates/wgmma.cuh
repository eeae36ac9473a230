#pragma once
#include "base.cuh"

// Warpgroup (128 threads, converged) for everything named wgmma_*. Order: data has arrived; wgmma_fence() before the first
// product, and whenever other code touched accumulators or A registers since; any number of wgmma_ss / wgmma_rs;
// wgmma_commit(); wgmma_wait<n>(): all but the newest n groups are done. Between issue and that wait no accumulator and no
// A register may be touched. Products on the same accumulators run in order without waits between.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// After wgmma_wait, on the accumulators that are done: keeps the compiler from reading them earlier. No instruction.
template <int kN>
__device__ __forceinline__ void pin(float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Matrix descriptor of an operand in shared memory. kSwizzle: 128, 64, 32, or 16 for none. lbo, sbo: byte offsets, see
// "Operand layouts". addr: 16-byte aligned; the tile it lies in aligned to 8 * kSwizzle bytes. Advance by adding
// (bytes >> 4) to the descriptor: the hardware swizzles the sum of all offsets.
template <int kSwizzle>
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  static_assert(kSwizzle == 128 || kSwizzle == 64 || kSwizzle == 32 || kSwizzle == 16, "no such swizzle");
  const uint64_t layout = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3 : 0;
  return (layout << 62) | (static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32) |
         (static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16) | ((addr & 0x3FFFF) >> 4);
}
// K-major operand: rows are M (of A) or N (of B), kSwizzle bytes of K each, as one TMA box brings it. trans = 0. The next 16
// of K: + 2 (32 bytes), inside the row; rows past it: the next box. 64 rows further: + 64 * kSwizzle / 16.
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_k_major(uint32_t addr) {
  return smem_desc<kSwizzle>(addr, 16, 8 * kSwizzle);
}
// MN-major operand: rows are K, kSwizzle bytes of M or N each. trans = 1. `next_box`: bytes to the box with the next
// kSwizzle / 2 elements of M or N (unused when they all are in one box). The next 16 of K: + kSwizzle (16 rows).
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_mn_major(uint32_t addr, uint32_t next_box) {
  return smem_desc<kSwizzle>(addr, next_box, 8 * kSwizzle);
}

// Lists of registers %0 .. %(n - 1) and of their operands, for n = N / 2 accumulators.
#define WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WG_R4 "%0, %1, %2, %3"
#define WG_D4(d) WG_4(d, 0)
#define WG_R8 WG_R4 ", %4, %5, %6, %7"
#define WG_D8(d) WG_D4(d), WG_4(d, 4)
#define WG_R12 WG_R8 ", %8, %9, %10, %11"
#define WG_D12(d) WG_D8(d), WG_4(d, 8)
#define WG_R16 WG_R12 ", %12, %13, %14, %15"
#define WG_D16(d) WG_D12(d), WG_4(d, 12)
#define WG_R20 WG_R16 ", %16, %17, %18, %19"
#define WG_D20(d) WG_D16(d), WG_4(d, 16)
#define WG_R24 WG_R20 ", %20, %21, %22, %23"
#define WG_D24(d) WG_D20(d), WG_4(d, 20)
#define WG_R28 WG_R24 ", %24, %25, %26, %27"
#define WG_D28(d) WG_D24(d), WG_4(d, 24)
#define WG_R32 WG_R28 ", %28, %29, %30, %31"
#define WG_D32(d) WG_D28(d), WG_4(d, 28)
#define WG_R36 WG_R32 ", %32, %33, %34, %35"
#define WG_D36(d) WG_D32(d), WG_4(d, 32)
#define WG_R40 WG_R36 ", %36, %37, %38, %39"
#define WG_D40(d) WG_D36(d), WG_4(d, 36)
#define WG_R44 WG_R40 ", %40, %41, %42, %43"
#define WG_D44(d) WG_D40(d), WG_4(d, 40)
#define WG_R48 WG_R44 ", %44, %45, %46, %47"
#define WG_D48(d) WG_D44(d), WG_4(d, 44)
#define WG_R52 WG_R48 ", %48, %49, %50, %51"
#define WG_D52(d) WG_D48(d), WG_4(d, 48)
#define WG_R56 WG_R52 ", %52, %53, %54, %55"
#define WG_D56(d) WG_D52(d), WG_4(d, 52)
#define WG_R60 WG_R56 ", %56, %57, %58, %59"
#define WG_D60(d) WG_D56(d), WG_4(d, 56)
#define WG_R64 WG_R60 ", %60, %61, %62, %63"
#define WG_D64(d) WG_D60(d), WG_4(d, 60)
#define WG_R68 WG_R64 ", %64, %65, %66, %67"
#define WG_D68(d) WG_D64(d), WG_4(d, 64)
#define WG_R72 WG_R68 ", %68, %69, %70, %71"
#define WG_D72(d) WG_D68(d), WG_4(d, 68)
#define WG_R76 WG_R72 ", %72, %73, %74, %75"
#define WG_D76(d) WG_D72(d), WG_4(d, 72)
#define WG_R80 WG_R76 ", %76, %77, %78, %79"
#define WG_D80(d) WG_D76(d), WG_4(d, 76)
#define WG_R84 WG_R80 ", %80, %81, %82, %83"
#define WG_D84(d) WG_D80(d), WG_4(d, 80)
#define WG_R88 WG_R84 ", %84, %85, %86, %87"
#define WG_D88(d) WG_D84(d), WG_4(d, 84)
#define WG_R92 WG_R88 ", %88, %89, %90, %91"
#define WG_D92(d) WG_D88(d), WG_4(d, 88)
#define WG_R96 WG_R92 ", %92, %93, %94, %95"
#define WG_D96(d) WG_D92(d), WG_4(d, 92)
#define WG_R100 WG_R96 ", %96, %97, %98, %99"
#define WG_D100(d) WG_D96(d), WG_4(d, 96)
#define WG_R104 WG_R100 ", %100, %101, %102, %103"
#define WG_D104(d) WG_D100(d), WG_4(d, 100)
#define WG_R108 WG_R104 ", %104, %105, %106, %107"
#define WG_D108(d) WG_D104(d), WG_4(d, 104)
#define WG_R112 WG_R108 ", %108, %109, %110, %111"
#define WG_D112(d) WG_D108(d), WG_4(d, 108)
#define WG_R116 WG_R112 ", %112, %113, %114, %115"
#define WG_D116(d) WG_D112(d), WG_4(d, 112)
#define WG_R120 WG_R116 ", %116, %117, %118, %119"
#define WG_D120(d) WG_D116(d), WG_4(d, 116)
#define WG_R124 WG_R120 ", %120, %121, %122, %123"
#define WG_D124(d) WG_D120(d), WG_4(d, 120)
#define WG_R128 WG_R124 ", %124, %125, %126, %127"
#define WG_D128(d) WG_D124(d), WG_4(d, 124)

// d (64 x N, FP32) = A (64 x 16) B (16 x N) + (accumulate ? d : 0), BF16; N = 8, 16, ... 256 is twice the size of d.
// - wgmma_ss<kTransA, kTransB>: A and B in shared memory; kTrans 0: K-major, 1: MN-major.
// - wgmma_rs<kTransB>: A in registers a[0..3] of each thread (see pack_fragments), always K-major.
// The two literal 1 are factors of A and B (1 or -1). F16: write .f32.f16.f16.
// WGMMA_N defines both for one N; R = N / 2, i1 .. i6 = R + 1 .. R + 6 number the operands after the accumulators.
#define WGMMA_N(N, R, i1, i2, i3, i4, i5, i6)                                                                       \
  template <int kTransA = 0, int kTransB = 0>                                                                       \
  __device__ __forceinline__ void wgmma_ss(float (&d)[R], uint64_t a, uint64_t b, int accumulate) {                 \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #i2 ", 0;\n"                                                \
                 " wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" WG_R##R "}, %" #R ", %" #i1          \
                 ", p, 1, 1, %" #i3 ", %" #i4 ";\n}"                                                                \
                 : WG_D##R(d) : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB) : "memory");            \
  }                                                                                                                 \
  template <int kTransB = 0>                                                                                        \
  __device__ __forceinline__ void wgmma_rs(float (&d)[R], const uint32_t* a, uint64_t b, int accumulate) {          \
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #i5 ", 0;\n"                                                \
                 " wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" WG_R##R "}, {%" #R ", %" #i1         \
                 ", %" #i2 ", %" #i3 "}, %" #i4 ", p, 1, 1, %" #i6 ";\n}"                                           \
                 : WG_D##R(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB)   \
                 : "memory");                                                                                       \
  }
WGMMA_N(8, 4, 5, 6, 7, 8, 9, 10)
WGMMA_N(16, 8, 9, 10, 11, 12, 13, 14)
WGMMA_N(24, 12, 13, 14, 15, 16, 17, 18)
WGMMA_N(32, 16, 17, 18, 19, 20, 21, 22)
WGMMA_N(40, 20, 21, 22, 23, 24, 25, 26)
WGMMA_N(48, 24, 25, 26, 27, 28, 29, 30)
WGMMA_N(56, 28, 29, 30, 31, 32, 33, 34)
WGMMA_N(64, 32, 33, 34, 35, 36, 37, 38)
WGMMA_N(72, 36, 37, 38, 39, 40, 41, 42)
WGMMA_N(80, 40, 41, 42, 43, 44, 45, 46)
WGMMA_N(88, 44, 45, 46, 47, 48, 49, 50)
WGMMA_N(96, 48, 49, 50, 51, 52, 53, 54)
WGMMA_N(104, 52, 53, 54, 55, 56, 57, 58)
WGMMA_N(112, 56, 57, 58, 59, 60, 61, 62)
WGMMA_N(120, 60, 61, 62, 63, 64, 65, 66)
WGMMA_N(128, 64, 65, 66, 67, 68, 69, 70)
WGMMA_N(136, 68, 69, 70, 71, 72, 73, 74)
WGMMA_N(144, 72, 73, 74, 75, 76, 77, 78)
WGMMA_N(152, 76, 77, 78, 79, 80, 81, 82)
WGMMA_N(160, 80, 81, 82, 83, 84, 85, 86)
WGMMA_N(168, 84, 85, 86, 87, 88, 89, 90)
WGMMA_N(176, 88, 89, 90, 91, 92, 93, 94)
WGMMA_N(184, 92, 93, 94, 95, 96, 97, 98)
WGMMA_N(192, 96, 97, 98, 99, 100, 101, 102)
WGMMA_N(200, 100, 101, 102, 103, 104, 105, 106)
WGMMA_N(208, 104, 105, 106, 107, 108, 109, 110)
WGMMA_N(216, 108, 109, 110, 111, 112, 113, 114)
WGMMA_N(224, 112, 113, 114, 115, 116, 117, 118)
WGMMA_N(232, 116, 117, 118, 119, 120, 121, 122)
WGMMA_N(240, 120, 121, 122, 123, 124, 125, 126)
WGMMA_N(248, 124, 125, 126, 127, 128, 129, 130)
WGMMA_N(256, 128, 129, 130, 131, 132, 133, 134)

// Place in the 64 x N tile of accumulator d[i] of thread `t` of the warpgroup (0 .. 127).
__host__ __device__ __forceinline__ constexpr int acc_row(int t, int i) { return t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8; }
__host__ __device__ __forceinline__ constexpr int acc_column(int t, int i) { return i / 4 * 8 + t % 4 * 2 + i % 2; }
