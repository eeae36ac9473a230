// C = A B^T, bf16 in and out, fp32 accumulation. Persistent, warp-specialized, clusters of 2 blocks along N, multicast of A.
// Block tile: 256 rows x 192 (or 200) columns; each of two consumer warpgroups has 128 rows, as two m64 accumulators.
// Tiles of 200 columns come first and use a ring of 3 stages; those of 192 columns use a ring of 4 stages. The part of A of
// slot 3 is also the staging memory of the epilogue.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int kSteps = kK / 64;  // 80
constexpr int kWide = 200;
constexpr int kNarrow = 192;
constexpr int kWidePairs = 4;     // pairs of columns, one pair for a cluster
constexpr int kNarrowPairs = 14;  // and one more column of 192 that has no partner
constexpr int kNarrowBase = 2 * kWidePairs * kWide;                       // first column of the narrow part
constexpr int kSingleColumn = kNarrowBase + 2 * kNarrowPairs * kNarrow;   // first column of the one without partner
static_assert(kSingleColumn + kNarrow == kN, "columns");
constexpr int kBand = 16;         // row groups of 256 in a band; even
constexpr int kWideStages = 3;
constexpr int kNarrowStages = 4;
constexpr int kRounds = kSteps / kNarrowStages;  // 20
static_assert(kSteps % kNarrowStages == 0 && kRounds % 2 == 0, "every narrow tile begins at slot 0 with phase 0");
constexpr uint32_t kHalfA = 128 * 128;      // 128 rows x 64 bf16: the part of one consumer
constexpr uint32_t kBytesA = 2 * kHalfA;
constexpr uint32_t kWideB = kWide * 128;
constexpr uint32_t kNarrowB = kNarrow * 128;
constexpr uint32_t kOffsetB = kNarrowStages * kBytesA;
constexpr uint32_t kStagingOffset = (kNarrowStages - 1) * kBytesA;  // A of slot 3, not used by the wide ring
constexpr uint32_t kBox = 8192;             // 64 x 64 bf16
constexpr uint32_t kBarrierOffset = kOffsetB + kNarrowStages * kNarrowB;
static_assert(kWideStages * kBytesA <= kStagingOffset, "the wide ring of A leaves the staging memory free");
static_assert(kWideStages * kWideB <= kNarrowStages * kNarrowB, "the wide ring of B lies in the same memory");
static_assert(kWideB % 1024 == 0 && kNarrowB % 1024 == 0, "alignment");
// Barriers, 8 bytes each: wide full, wide empty, narrow full, narrow empty.
constexpr uint32_t kBarWide = kBarrierOffset;
constexpr uint32_t kBarNarrow = kBarWide + 2 * kWideStages * 8;
constexpr uint32_t kSmemBytes = kBarNarrow + 2 * kNarrowStages * 8 + 1024;
static_assert(kSmemBytes <= 232448, "shared memory");

// ---------------------------------------------------------------- basics

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__host__ __device__ __forceinline__ constexpr uint32_t align_up(uint32_t x, uint32_t n) { return (x + n - 1) & ~(n - 1); }
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// ---------------------------------------------------------------- mbarrier

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// `remote`: an address from cluster_map.
__device__ __forceinline__ void mbar_arrive_mapped(uint32_t remote) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote) : "memory");
}
__device__ __forceinline__ void mbar_arrive_mapped_count(uint32_t remote, uint32_t count) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(remote), "r"(count) : "memory");
}
__device__ __forceinline__ bool mbar_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {}
}

template <int kSlots>
struct Ring {
  int slot = 0;
  uint32_t phase = 0;
  __host__ __device__ __forceinline__ void next() {
    if (++slot == kSlots) {
      slot = 0;
      phase ^= 1;
    }
  }
};

// ---------------------------------------------------------------- fences, roles, cluster

__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void fence_async_smem() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void named_sync(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(uint32_t id, uint32_t threads) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters) : "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_map(uint32_t addr, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(addr), "r"(rank));
  return remote;
}

// ---------------------------------------------------------------- TMA

inline CUtensorMap make_matrix_map(const void* data, int64_t rows, int64_t columns, uint32_t box_rows) {
  cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  cuuint64_t bytes[1] = {static_cast<cuuint64_t>(columns) * 2};
  cuuint32_t boxes[2] = {64, box_rows};
  cuuint32_t steps[2] = {1, 1};
  CUtensorMap map;
  const CUresult result = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, bytes, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result);
  return map;
}

__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(map), "r"(bar), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, uint16_t mask, int x,
                                                   int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
      "l"(map), "r"(bar), "h"(mask), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_store_hint(const CUtensorMap* map, uint32_t src, uint64_t policy, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%3, %4}], [%1], %2;" ::"l"(map),
      "r"(src), "l"(policy), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// ---------------------------------------------------------------- wgmma

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kCount>
__device__ __forceinline__ void pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// K-major operand, rows of 128 bytes, 128-byte swizzle. The upper word is a constant; the lower one holds the address.
__device__ __forceinline__ uint32_t desc_low(uint32_t addr) { return (1u << 16) | ((addr & 0x3FFFFu) >> 4); }
__device__ __forceinline__ uint64_t desc(uint32_t low) {
  return (static_cast<uint64_t>((1u << 30) | (1024u >> 4)) << 32) | low;
}

#define ACC_4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define ACC_8(d, i) ACC_4(d, (i)), ACC_4(d, (i) + 4)
#define ACC_32(d, i) ACC_8(d, (i)), ACC_8(d, (i) + 8), ACC_8(d, (i) + 16), ACC_8(d, (i) + 24)

#define REGS_0_95                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, "                    \
  "%8, %9, %10, %11, %12, %13, %14, %15, "              \
  "%16, %17, %18, %19, %20, %21, %22, %23, "            \
  "%24, %25, %26, %27, %28, %29, %30, %31, "            \
  "%32, %33, %34, %35, %36, %37, %38, %39, "            \
  "%40, %41, %42, %43, %44, %45, %46, %47, "            \
  "%48, %49, %50, %51, %52, %53, %54, %55, "            \
  "%56, %57, %58, %59, %60, %61, %62, %63, "            \
  "%64, %65, %66, %67, %68, %69, %70, %71, "            \
  "%72, %73, %74, %75, %76, %77, %78, %79, "            \
  "%80, %81, %82, %83, %84, %85, %86, %87, "            \
  "%88, %89, %90, %91, %92, %93, %94, %95"

__device__ __forceinline__ void wgmma_ss(float (&d)[100], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %102, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n200k16.f32.bf16.bf16 {" REGS_0_95 ", %96, %97, %98, %99"
      "}, %100, %101, p, 1, 1, 0, 0;\n}"
      : ACC_32(d, 0), ACC_32(d, 32), ACC_32(d, 64), ACC_4(d, 96)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}
__device__ __forceinline__ void wgmma_ss(float (&d)[96], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %98, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" REGS_0_95
      "}, %96, %97, p, 1, 1, 0, 0;\n}"
      : ACC_32(d, 0), ACC_32(d, 32), ACC_32(d, 64)
      : "l"(a), "l"(b), "r"(accumulate)
      : "memory");
}

// ---------------------------------------------------------------- epilogue helpers

__device__ __forceinline__ uint32_t swizzle128(uint32_t offset) { return offset ^ ((offset >> 3) & 112u); }
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ void stmatrix_x4(uint32_t addr, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr), "r"(r0), "r"(r1), "r"(r2),
               "r"(r3)
               : "memory");
}
__device__ __forceinline__ void store_box(uint32_t box, const float* d, int t) {
  const int row = t / 32 * 16 + t % 16;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float* v = d + 4 * j;
    stmatrix_x4(box + swizzle128(static_cast<uint32_t>(row * 128 + (j + t % 32 / 16) * 16)), pack_bf16(v[0], v[1]),
                pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
}

// Warpgroup: 64 rows x 192 columns of its accumulators to C, through two boxes in turn, beginning with box kFirst.
template <int kFirst, int kCount>
__device__ __forceinline__ void store_half(const float (&d)[kCount], uint32_t staging, uint64_t policy,
                                           const CUtensorMap* map_c, int half, int t, int row, int column) {
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    const uint32_t box = staging + ((kFirst + j) & 1) * kBox;
    if (t == 0) tma_wait_read<1>();  // the store from this box, two ago, has been read
    named_sync(1 + half, 128);       // and all warps have finished their products
    store_box(box, d + 32 * j, t);
    fence_async_smem();
    named_sync(1 + half, 128);
    if (t == 0) {
      tma_store_hint(map_c, box, policy, column + 64 * j, row);
      tma_commit();
    }
  }
}

// Warpgroup: the last 8 columns of 64 rows of a wide tile.
__device__ __forceinline__ void store_last(const float (&d)[100], __nv_bfloat16* c, int m, int t, int row, int column) {
  const int r = row + t / 32 * 16 + t % 32 / 4;
  __nv_bfloat16* out = c + static_cast<int64_t>(r) * kN + (column + 192 + t % 4 * 2);
  if (r < m) *reinterpret_cast<uint32_t*>(out) = pack_bf16(d[96], d[97]);
  if (r + 8 < m) *reinterpret_cast<uint32_t*>(out + 8 * kN) = pack_bf16(d[98], d[99]);
}

// ---------------------------------------------------------------- schedule

// Tiles of a cluster: a row group of 256 rows x a pair of columns, one for each block. First all wide pairs, then the narrow
// ones, each part in bands of kBand row groups, row group fastest; the narrow part walks the row groups backwards, beginning
// with those that the wide part had last. At the end of each band of the narrow part comes the column without a partner:
// there the two blocks have two neighbouring row groups. row, column: of this block.
__device__ __forceinline__ void decode_wide(int r, int groups, int rank, int& row, int& column) {
  constexpr int kBandTiles = kBand * kWidePairs;
  const int band = r / kBandTiles;
  r -= band * kBandTiles;
  const int first = band * kBand;
  const int rows = min(kBand, groups - first);
  const int p = r / rows;
  row = (first + r - p * rows) * 256;
  column = (2 * p + rank) * kWide;
}
// Returns whether it is a pair of columns, so that both blocks have the same rows.
__device__ __forceinline__ bool decode_narrow(int r, int groups, int rank, int& row, int& column) {
  constexpr int kBandTiles = kBand * kNarrowPairs + kBand / 2;
  const int band = r / kBandTiles;
  r -= band * kBandTiles;
  const int first = band * kBand;
  const int rows = min(kBand, groups - first);
  const int p = r / rows;
  if (p < kNarrowPairs) {
    row = (groups - 1 - (first + r - p * rows)) * 256;
    column = kNarrowBase + (2 * p + rank) * kNarrow;
    return true;
  }
  const int g = first + 2 * (r - kNarrowPairs * rows);
  row = (max(groups - 2 - g, 0) + rank) * 256;  // an odd number of row groups: one is done twice, with the same values
  column = kSingleColumn;
  return false;
}

// ---------------------------------------------------------------- producer

// One thread. This block loads half of A's rows for both blocks, and its own columns' rows of B.
// x, dx: first k and step (forwards or backwards).
__device__ __forceinline__ void produce_wide(Ring<kWideStages>& ring, uint32_t smem, const CUtensorMap* map_a,
                                             const CUtensorMap* map_b, int rank, int row, int column, int x, int dx) {
  const int y_a = row + rank * 128;
  const uint32_t dst_a = smem + rank * kHalfA;
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    const uint32_t bar = smem + kBarWide + 8 * ring.slot;
    mbar_wait(bar + 8 * kWideStages, ring.phase ^ 1);
    mbar_expect_tx(bar, kBytesA + kWideB);
    tma_load_multicast(dst_a + ring.slot * kBytesA, map_a, bar, static_cast<uint16_t>(3), x, y_a);
    tma_load(smem + kOffsetB + ring.slot * kWideB, map_b, bar, x, column);
    x += dx;
    ring.next();
  }
}
// Slot 3 is handed over once before its first round (it was staging memory), so its parity is one phase on.
__device__ __forceinline__ void produce_narrow(uint32_t smem, const CUtensorMap* map_a, const CUtensorMap* map_b, int rank,
                                               bool pair, int row, int column, int x, int dx) {
  const int y_a = pair ? row + rank * 128 : row;
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    const int slot = k % kNarrowStages;
    const uint32_t phase = static_cast<uint32_t>(k / kNarrowStages) & 1u;
    const uint32_t bar = smem + kBarNarrow + 8 * slot;
    const uint32_t dst_a = smem + slot * kBytesA;
    mbar_wait(bar + 8 * kNarrowStages, slot == kNarrowStages - 1 ? phase : phase ^ 1u);
    mbar_expect_tx(bar, kBytesA + kNarrowB);
    if (pair) {
      tma_load_multicast(dst_a + rank * kHalfA, map_a, bar, static_cast<uint16_t>(3), x, y_a);
    } else {
      tma_load(dst_a, map_a, bar, x, y_a);
      tma_load(dst_a + kHalfA, map_a, bar, x, y_a + 128);
    }
    tma_load(smem + kOffsetB + slot * kNarrowB, map_b, bar, x, column);
    x += dx;
  }
}

// ---------------------------------------------------------------- consumers

template <int kCount>
__device__ __forceinline__ void issue_step(float (&d0)[kCount], float (&d1)[kCount], uint32_t a, uint32_t b,
                                           int accumulate) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wgmma_ss(d0, desc(a + 2 * i), desc(b + 2 * i), i > 0 ? 1 : accumulate);
    wgmma_ss(d1, desc(a + 512 + 2 * i), desc(b + 2 * i), i > 0 ? 1 : accumulate);
  }
  wgmma_commit();
}

// Warpgroup: 128 x 200 of the tile. smem_mapped: the shared memory of block (lane & 1) of the cluster. row: first row of
// this consumer.
__device__ __forceinline__ void consume_wide(Ring<kWideStages>& ring, uint32_t smem, uint32_t smem_mapped, uint32_t low_a,
                                             uint32_t low_b, uint32_t staging, uint64_t policy, const CUtensorMap* map_c,
                                             __nv_bfloat16* c, int m, int half, int t, int row, int column) {
  constexpr uint32_t kStepA = kBytesA >> 4, kStepB = kWideB >> 4;
  const uint32_t full = smem + kBarWide;
  const uint32_t empty_mapped = smem_mapped + kBarWide + 8 * kWideStages;
  float d0[kWide / 2], d1[kWide / 2];
  const bool releases = t % 32 < 2;

  // Consumer 1 stays a step behind consumer 0, so that the epilogue of one runs beside products of the other.
  if (half == 1) named_sync(3, 256);

  mbar_wait(full + 8 * ring.slot, ring.phase);
  issue_step(d0, d1, low_a + ring.slot * kStepA, low_b + ring.slot * kStepB, 0);
  int previous = ring.slot;
  ring.next();

  mbar_wait(full + 8 * ring.slot, ring.phase);
  issue_step(d0, d1, low_a + ring.slot * kStepA, low_b + ring.slot * kStepB, 1);
  wgmma_wait<1>();
  if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
  previous = ring.slot;
  ring.next();
  __syncwarp();
  if (half == 0) named_arrive(3, 256);

#pragma unroll 1
  for (int k = 2; k < kSteps; ++k) {
    mbar_wait(full + 8 * ring.slot, ring.phase);
    issue_step(d0, d1, low_a + ring.slot * kStepA, low_b + ring.slot * kStepB, 1);
    wgmma_wait<1>();  // the step before has been read
    if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
    previous = ring.slot;
    ring.next();
  }
  wgmma_wait<0>();
  if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
  __syncwarp();
  pin(d0);
  pin(d1);

  store_last(d0, c, m, t, row, column);
  store_last(d1, c, m, t, row + 64, column);
  __syncwarp();
  store_half<0>(d0, staging, policy, map_c, half, t, row, column);
  store_half<1>(d1, staging, policy, map_c, half, t, row + 64, column);
}

// Warpgroup: hands slot 3 back to both blocks, for its four warps, when the stores of the last epilogue have been read.
__device__ __forceinline__ void release_staging(uint32_t empty_mapped, int t) {
  if (t < 32) {
    if (t == 0) tma_wait_read<0>();
    __syncwarp();
    if (t < 2) mbar_arrive_mapped_count(empty_mapped + 8 * (kNarrowStages - 1), 4);
    __syncwarp();
  }
}

// Warpgroup: 128 x 192 of the tile; the same with fixed slots. The last step's slot 3 is kept for the epilogue.
__device__ __forceinline__ void consume_narrow(uint32_t smem, uint32_t smem_mapped, uint32_t low_a, uint32_t low_b,
                                               uint32_t staging, uint64_t policy, const CUtensorMap* map_c, int half, int t,
                                               int row, int column) {
  constexpr uint32_t kStepA = kBytesA >> 4, kStepB = kNarrowB >> 4;
  const uint32_t full = smem + kBarNarrow;
  const uint32_t empty_mapped = smem_mapped + kBarNarrow + 8 * kNarrowStages;
  float d0[kNarrow / 2], d1[kNarrow / 2];
  const bool releases = t % 32 < 2;

  // Consumer 1 stays a step behind consumer 0, so that the epilogue of one runs beside products of the other.
  if (half == 1) {
    release_staging(empty_mapped, t);
    named_sync(3, 256);
  }

  // Round 0.
  mbar_wait(full, 0);
  issue_step(d0, d1, low_a, low_b, 0);
  if (half == 0) release_staging(empty_mapped, t);
#pragma unroll
  for (int s = 1; s < kNarrowStages; ++s) {
    mbar_wait(full + 8 * s, 0);
    issue_step(d0, d1, low_a + s * kStepA, low_b + s * kStepB, 1);
    wgmma_wait<1>();  // the step before has been read
    if (releases) mbar_arrive_mapped(empty_mapped + 8 * (s - 1));
    if (s == 1) {
      __syncwarp();
      if (half == 0) named_arrive(3, 256);
    }
  }

#pragma unroll 1
  for (int round = 1; round < kRounds; ++round) {
    const uint32_t phase = static_cast<uint32_t>(round) & 1u;
#pragma unroll
    for (int s = 0; s < kNarrowStages; ++s) {
      mbar_wait(full + 8 * s, phase);
      issue_step(d0, d1, low_a + s * kStepA, low_b + s * kStepB, 1);
      wgmma_wait<1>();
      if (releases) mbar_arrive_mapped(empty_mapped + 8 * ((s + kNarrowStages - 1) % kNarrowStages));
    }
  }
  wgmma_wait<0>();
  __syncwarp();
  pin(d0);
  pin(d1);

  store_half<0>(d0, staging, policy, map_c, half, t, row, column);
  store_half<1>(d1, staging, policy, map_c, half, t, row + 64, column);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b192,
                const __grid_constant__ CUtensorMap map_b200, const __grid_constant__ CUtensorMap map_c,
                __nv_bfloat16* c, int m, int groups) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  const int rank = static_cast<int>(cluster_rank());
  const int first = static_cast<int>(blockIdx.x) / 2;
  const int stride = static_cast<int>(gridDim.x) / 2;
  const int wides = kWidePairs * groups;
  const int total = wides + kNarrowPairs * groups + (groups + 1) / 2;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b192);
    tma_prefetch_map(&map_b200);
    tma_prefetch_map(&map_c);
    for (int i = 0; i < kWideStages; ++i) {
      mbar_init(smem + kBarWide + 8 * i, 1);
      mbar_init(smem + kBarWide + 8 * (kWideStages + i), 16);  // 8 consumer warps of each of the two blocks
    }
    for (int i = 0; i < kNarrowStages; ++i) {
      mbar_init(smem + kBarNarrow + 8 * i, 1);
      mbar_init(smem + kBarNarrow + 8 * (kNarrowStages + i), 16);
    }
    fence_mbarrier_init();
  }
  __syncwarp();
  cluster_sync();

  if (role == 0) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      int tile = first, row, column;
      int x = 0, dx = 64;  // k forwards in one tile, backwards in the next
      {
        Ring<kWideStages> ring;
        for (; tile < wides; tile += stride) {
          decode_wide(tile, groups, rank, row, column);
          produce_wide(ring, smem, &map_a, &map_b200, rank, row, column, x, dx);
          x = (kSteps - 1) * 64 - x;
          dx = -dx;
        }
        // The narrow ring lies in the same memory: all wide stages must have been read, in both blocks.
        for (int i = 0; i < kWideStages; ++i) {
          mbar_wait(smem + kBarWide + 8 * (kWideStages + ring.slot), ring.phase ^ 1);
          ring.next();
        }
      }
      for (; tile < total; tile += stride) {
        const bool pair = decode_narrow(tile - wides, groups, rank, row, column);
        produce_narrow(smem, &map_a, &map_b192, rank, pair, row, column, x, dx);
        x = (kSteps - 1) * 64 - x;
        dx = -dx;
      }
    }
    __syncwarp();
  } else {
    setmaxnreg_inc<240>();
    const int half = role - 1;
    const int t = static_cast<int>(threadIdx.x) % 128;
    const uint32_t smem_mapped = cluster_map(smem, static_cast<uint32_t>(t & 1));
    const uint32_t low_a = desc_low(smem + half * kHalfA);
    const uint32_t low_b = desc_low(smem + kOffsetB);
    const uint32_t staging = smem + kStagingOffset + half * kHalfA;
    const uint64_t policy = policy_evict_first();
    int tile = first, row, column;
    {
      Ring<kWideStages> ring;
      for (; tile < wides; tile += stride) {
        decode_wide(tile, groups, rank, row, column);
        consume_wide(ring, smem, smem_mapped, low_a, low_b, staging, policy, &map_c, c, m, half, t, row + half * 128,
                     column);
      }
    }
    for (; tile < total; tile += stride) {
      decode_narrow(tile - wides, groups, rank, row, column);
      consume_narrow(smem, smem_mapped, low_a, low_b, staging, policy, &map_c, half, t, row + half * 128, column);
    }
    if (t == 0) tma_wait<0>();
    __syncwarp();
  }
  cluster_sync();  // the peer's arrivals and copies need this block's shared memory
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() != 2 || A.size(1) != kK) TVM_FFI_THROW(RuntimeError) << "expected A[M, " << kK << "]";
  if (B.ndim() != 2 || B.size(0) != kN || B.size(1) != kK)
    TVM_FFI_THROW(RuntimeError) << "expected B[" << kN << ", " << kK << "]";
  const int64_t m = A.size(0);
  if (C.ndim() != 2 || C.size(0) != m || C.size(1) != kN) TVM_FFI_THROW(RuntimeError) << "expected C[M, " << kN << "]";
  if (m == 0) return;

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id), "number of SMs");
  const int groups = static_cast<int>((m + 255) / 256);
  const int total = (kWidePairs + kNarrowPairs) * groups + (groups + 1) / 2;
  int clusters = sms / 2;
  if (clusters < 1) clusters = 1;
  if (clusters > total) clusters = total;

  const CUtensorMap map_a = make_matrix_map(A.data_ptr(), m, kK, 128);
  const CUtensorMap map_b192 = make_matrix_map(B.data_ptr(), kN, kK, kNarrow);
  const CUtensorMap map_b200 = make_matrix_map(B.data_ptr(), kN, kK, kWide);
  const CUtensorMap map_c = make_matrix_map(C.data_ptr(), m, kN, 64);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  check(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmemBytes)),
        "dynamic shared memory");
  gemm_kernel<<<static_cast<unsigned>(2 * clusters), 384, kSmemBytes, stream>>>(
      map_a, map_b192, map_b200, map_c, static_cast<__nv_bfloat16*>(C.data_ptr()), static_cast<int>(m), groups);
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
