// Checks of mma.cuh: compiled and disassembled for sm_100a, never executed.
#include "mma.cuh"

// Descriptors against values written out by hand from the tables of the PTX ISA.
static_assert(smem_desc(0x1000, 32, 1024, kSwizzle128) == 0x4000404000020100ull);
static_assert(smem_desc(0xFFFFF400u, 16, 512, kSwizzle64, 3) == 0x8006402000013F40ull);
static_assert(smem_desc(0, 128, 256, kSwizzleNone) == 0x0000401000080000ull);
static_assert(smem_desc(16, 16, 256, kSwizzle32) == 0xC000401000010001ull);
static_assert(smem_desc(0, 4096, 2048, kSwizzle128Base32) == 0x2000408001000000ull);
static_assert(smem_desc_k_major(0x400) == smem_desc(0x400, 16, 1024, kSwizzle128));
static_assert(smem_desc_mn_major(0x400, 16384) == 0x4000404004000040ull);
static_assert(instr_desc_bf16(128, 256) == 0x08400490u);
static_assert(instr_desc_bf16(256, 128, true, true) == 0x10218490u);
static_assert(instr_desc(2, 2, 128, 64) == 0x08100910u);
static_assert(instr_desc(1, 0, 64, 8, false, false, true, true) == 0x04026090u);
static_assert(instr_desc_mxf4(128, 256, 2, 0) == 0x48C00480u);
static_assert(instr_desc_mxf4(256, 128, 0, 2) == 0x10A004A0u);

// One thread issues `body`, commits, and all wait; the result is what is in TMEM.
#define CHECK_ISSUE(name, attributes, group, commit, ...)                                          \
  __global__ void attributes name(uint32_t* out, uint32_t a, uint32_t b, int steps) {              \
    __shared__ uint32_t slot;                                                                      \
    __shared__ uint64_t barrier;                                                                   \
    const uint32_t bar = smem_u32(&barrier);                                                       \
    if (threadIdx.x < 32) tmem_alloc<group>(smem_u32(&slot), 512);                                 \
    if (threadIdx.x == 0) {                                                                        \
      mbar_init(bar, 1);                                                                           \
      mbar_init_fence();                                                                           \
    }                                                                                              \
    tmem_fence_before();                                                                           \
    __syncthreads();                                                                               \
    if (group == 2) cluster_sync();                                                                \
    tmem_fence_after();                                                                            \
    const uint32_t d = slot;                                                                       \
    if (threadIdx.x == 0 && (group == 1 || cluster_rank() == 0)) {                                 \
      for (int k = 0; k < steps; ++k) {                                                            \
        __VA_ARGS__;                                                                               \
      }                                                                                            \
      commit;                                                                                      \
    }                                                                                              \
    __syncwarp();                                                                                  \
    mbar_wait(bar, 0);                                                                             \
    tmem_fence_after();                                                                            \
    uint32_t r[32];                                                                                \
    tmem_ld_32x32b(r, d + ((threadIdx.x >> 5) << 21));                                             \
    tmem_wait_ld();                                                                                \
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = r[i];                                 \
    tmem_fence_before();                                                                           \
    __syncthreads();                                                                               \
    if (group == 2) cluster_sync();                                                                \
    if (threadIdx.x < 32) tmem_dealloc<group>(d, 512);                                             \
  }
#define PAIR __cluster_dims__(2, 1, 1)
#define SS(name, ...)                                                                                          \
  CHECK_ISSUE(check_##name, , 1, mma_commit(bar), name(d, smem_desc_k_major(a) + 2 * k, smem_desc_k_major(b) + 2 * k, __VA_ARGS__, k > 0)) \
  CHECK_ISSUE(check_##name##_pair, PAIR, 2, mma_commit_multicast<2>(bar, 0b11),                                \
              name<2>(d, smem_desc_k_major(a) + 2 * k, smem_desc_k_major(b) + 2 * k, __VA_ARGS__, k > 0))

SS(mma_f16_ss, instr_desc_bf16(128, 128))
SS(mma_tf32_ss, instr_desc(2, 2, 128, 128))
SS(mma_f8f6f4_ss, instr_desc(0, 1, 128, 128))
SS(mma_mxf4_ss, instr_desc_mxf4(128, 128, 0, 0), d + 256, d + 260)

CHECK_ISSUE(check_mma_f16_ts, , 1, mma_commit(bar),
            mma_f16_ts(d, d + 128 + 8 * k, smem_desc_mn_major(b, 16384) + 128 * k, instr_desc_bf16(128, 128, false, true), k > 0))
CHECK_ISSUE(check_mma_f16_ts_pair, PAIR, 2, mma_commit_multicast<2>(bar, 0b11),
            mma_f16_ts<2>(d, d + 128 + 8 * k, smem_desc_mn_major(b, 16384) + 128 * k, instr_desc_bf16(256, 128, false, true), k > 0))

// Commits: to the own block in a pair, and to others without pairs.
CHECK_ISSUE(check_mma_commit_pair, PAIR, 2, mma_commit<2>(bar); mma_commit_multicast<2>(bar, 0b10),
            mma_f16_ss<2>(d, smem_desc_k_major(a) + 2 * k, smem_desc_k_major(b) + 2 * k, instr_desc_bf16(256, 256), k > 0))
CHECK_ISSUE(check_mma_commit_multicast, PAIR, 1, mma_commit_multicast(bar, 0b11),
            mma_f16_ss(d, smem_desc_k_major(a) + 2 * k, smem_desc_k_major(b) + 2 * k, instr_desc_bf16(64, 256), k > 0))

#define CP(name, ...)                                                             \
  CHECK_ISSUE(check_##name, , 1, mma_commit(bar), name(d + 8 * k, ##__VA_ARGS__)) \
  CHECK_ISSUE(check_##name##_pair, PAIR, 2, mma_commit_multicast<2>(bar, 0b11), name<2>(d + 8 * k, ##__VA_ARGS__))

CP(tmem_cp_128x256b, smem_desc(a, 128, 256, kSwizzleNone))
CP(tmem_cp_32x128b, smem_desc(a, 128, 128, kSwizzleNone))
CP(tmem_shift_down)
