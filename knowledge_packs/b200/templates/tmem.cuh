#pragma once
#include "barrier.cuh"

// TMEM address = lane << 16 | column. kGroup, here and below: 1, or 2 for CTA pairs; one value in a whole kernel.
// Allocation: one whole warp, converged; with kGroup = 2 one warp of each block of the pair, both. Waits until `columns` (32, 64, ... 512,
// not more than in an earlier allocation of the block) are free, and writes the address to shared memory at `slot`.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_alloc(uint32_t slot, uint32_t columns) {
  asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(slot), "r"(columns), "n"(kGroup) : "memory");
}
// No allocation by this block from here on; lets a next block of the SM allocate. Same callers as tmem_alloc.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_relinquish() {
  asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(kGroup) : "memory");
}
// Every allocation must be freed before the block ends, when all accesses (the peer's too) are done. Same callers as tmem_alloc.
template <int kGroup = 1>
__device__ __forceinline__ void tmem_dealloc(uint32_t tmem, uint32_t columns) {
  asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns), "n"(kGroup) : "memory");
}

// Around a barrier between threads that hand TMEM over: the first before arriving, the second after waiting. They do not wait for anything.
__device__ __forceinline__ void tmem_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ __forceinline__ void tmem_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Loads and stores below are asynchronous and collective: a whole warp, converged, the same address in all lanes. Registers are to be
// used (or TMEM overwritten) only after tmem_wait_ld, stored data by others only after tmem_wait_st, of the same thread.
__device__ __forceinline__ void tmem_wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void tmem_wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

#define PTX_REGS_1 "%0"
#define PTX_REGS_2 "%0, %1"
#define PTX_REGS_4 "%0, %1, %2, %3"
#define PTX_REGS_8 PTX_REGS_4 ", %4, %5, %6, %7"
#define PTX_REGS_16 PTX_REGS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PTX_REGS_32 PTX_REGS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PTX_REGS_64                                                                                                \
  PTX_REGS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "  \
              "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PTX_REGS_128                                                                                               \
  PTX_REGS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, "  \
              "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, "  \
              "%102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "   \
              "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define PTX_OP_1(c, r, i) c(r[i])
#define PTX_OP_2(c, r, i) c(r[i]), c(r[i + 1])
#define PTX_OP_4(c, r, i) PTX_OP_2(c, r, i), PTX_OP_2(c, r, i + 2)
#define PTX_OP_8(c, r, i) PTX_OP_4(c, r, i), PTX_OP_4(c, r, i + 4)
#define PTX_OP_16(c, r, i) PTX_OP_8(c, r, i), PTX_OP_8(c, r, i + 8)
#define PTX_OP_32(c, r, i) PTX_OP_16(c, r, i), PTX_OP_16(c, r, i + 16)
#define PTX_OP_64(c, r, i) PTX_OP_32(c, r, i), PTX_OP_32(c, r, i + 32)
#define PTX_OP_128(c, r, i) PTX_OP_64(c, r, i), PTX_OP_64(c, r, i + 64)
#define PTX_TMEM_LD(instruction, n) \
  if constexpr (N == n)             \
  asm volatile(instruction " {" PTX_REGS_##n "}, [%" #n "];" : PTX_OP_##n("=r", r, 0) : "r"(tmem) : "memory")
#define PTX_TMEM_ST(instruction, n) \
  if constexpr (N == n)             \
  asm volatile(instruction " [%" #n "], {" PTX_REGS_##n "};" ::PTX_OP_##n("r", r, 0), "r"(tmem) : "memory")

// 32 lanes x N columns, N = 1, 2, 4, ... 128: r[i] of thread t is column i of lane t. Lane of the address: 32 * (warp % 4).
template <int N>
__device__ __forceinline__ void tmem_ld_32x32b(uint32_t (&r)[N], uint32_t tmem) {
  static_assert(N >= 1 && N <= 128 && (N & (N - 1)) == 0, "N = 1, 2, 4, ... 128");
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x1.b32", 1);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x2.b32", 2);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x4.b32", 4);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x8.b32", 8);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x16.b32", 16);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x32.b32", 32);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x64.b32", 64);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.32x32b.x128.b32", 128);
}
template <int N>
__device__ __forceinline__ void tmem_st_32x32b(uint32_t tmem, const uint32_t (&r)[N]) {
  static_assert(N >= 1 && N <= 128 && (N & (N - 1)) == 0, "N = 1, 2, 4, ... 128");
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x1.b32", 1);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x2.b32", 2);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x4.b32", 4);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x8.b32", 8);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x16.b32", 16);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x32.b32", 32);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x64.b32", 64);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.32x32b.x128.b32", 128);
}
// 16 lanes x 2 N columns: r[i] is lane t / 4 + 8 (t % 2), column 2 i + (t / 2) % 2. Lane of the address: 32 * (warp % 4), or + 16.
template <int N>
__device__ __forceinline__ void tmem_ld_16x64b(uint32_t (&r)[N], uint32_t tmem) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x64b.x8.b32", 8);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x64b.x16.b32", 16);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x64b.x32.b32", 32);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x64b.x64.b32", 64);
}
template <int N>
__device__ __forceinline__ void tmem_st_16x64b(uint32_t tmem, const uint32_t (&r)[N]) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x64b.x8.b32", 8);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x64b.x16.b32", 16);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x64b.x32.b32", 32);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x64b.x64.b32", 64);
}
// 16 lanes x 2 N columns: r[2 i + h] is lane t / 4 + 8 h, column 4 i + t % 4.
template <int N>
__device__ __forceinline__ void tmem_ld_16x128b(uint32_t (&r)[N], uint32_t tmem) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x128b.x4.b32", 8);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x128b.x8.b32", 16);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x128b.x16.b32", 32);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x128b.x32.b32", 64);
}
template <int N>
__device__ __forceinline__ void tmem_st_16x128b(uint32_t tmem, const uint32_t (&r)[N]) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x128b.x4.b32", 8);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x128b.x8.b32", 16);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x128b.x16.b32", 32);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x128b.x32.b32", 64);
}
// 16 lanes x 2 N columns, the fragment of mma.sync's accumulator: r[4 i + 2 h + e] is lane t / 4 + 8 h, column 8 i + 2 (t % 4) + e.
template <int N>
__device__ __forceinline__ void tmem_ld_16x256b(uint32_t (&r)[N], uint32_t tmem) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x256b.x2.b32", 8);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x256b.x4.b32", 16);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x256b.x8.b32", 32);
  PTX_TMEM_LD("tcgen05.ld.sync.aligned.16x256b.x16.b32", 64);
}
template <int N>
__device__ __forceinline__ void tmem_st_16x256b(uint32_t tmem, const uint32_t (&r)[N]) {
  static_assert(N >= 8 && N <= 64 && (N & (N - 1)) == 0, "N = 8, 16, 32, 64");
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x256b.x2.b32", 8);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x256b.x4.b32", 16);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x256b.x8.b32", 32);
  PTX_TMEM_ST("tcgen05.st.sync.aligned.16x256b.x16.b32", 64);
}
