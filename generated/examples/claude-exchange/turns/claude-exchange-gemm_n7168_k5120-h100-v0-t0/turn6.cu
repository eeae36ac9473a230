// C = A B^T, bf16 in and out, fp32 accumulation. Persistent, warp-specialized, clusters of 2 blocks along M, multicast of B.
// Block tile: 256 rows x 192 (or 200) columns; each of two consumer warpgroups has 128 rows, as two m64 accumulators.
// Epilogue: every warp on its own, boxes of 16 x 64 through three buffers, TMA stores.
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
constexpr int kStages = 3;
constexpr int kWide = 200;
constexpr int kNarrow = 192;
constexpr int kWideCols = 8;
constexpr int kNarrowCols = 29;
static_assert(kWide * kWideCols + kNarrow * kNarrowCols == kN, "columns");
constexpr int kBand = 8;                      // row groups of 512 in a band
constexpr uint32_t kBytesA = 256 * 128;       // 256 rows x 64 bf16
constexpr uint32_t kBytesB = kWide * 128;     // up to 200 rows x 64 bf16
constexpr uint32_t kStage = kBytesA + kBytesB;
static_assert(kStage % 1024 == 0, "alignment of stages");
constexpr uint32_t kStageDesc = kStage >> 4;
constexpr uint32_t kBox = 2048;               // 16 x 64 bf16
constexpr uint32_t kStagingOffset = kStages * kStage;
constexpr uint32_t kBarrierOffset = kStagingOffset + 8 * 3 * kBox;  // 8 consumer warps, three boxes each
constexpr uint32_t kSmemBytes = kBarrierOffset + 2 * kStages * 8 + 1024;
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

// K-major operand, rows of 128 bytes, 128-byte swizzle.
__device__ __forceinline__ uint64_t desc_k_major(uint32_t addr) {
  return (static_cast<uint64_t>(1) << 62) | (static_cast<uint64_t>(1024 >> 4) << 32) | (static_cast<uint64_t>(16 >> 4) << 16) |
         static_cast<uint64_t>((addr & 0x3FFFF) >> 4);
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

// ---------------------------------------------------------------- schedule

// Tiles of a cluster: a row group of 512 rows x one column tile. First all wide ones (kWideCols columns of 200), then the
// narrow ones (192). Within each part: bands of kBand row groups, row group fastest. The narrow part walks the row groups
// backwards, beginning with those that the wide part had last.
__device__ __forceinline__ void decode(int r, int cols, int groups, int& group, int& c) {
  const int band_tiles = kBand * cols;
  const int band = r / band_tiles;
  r -= band * band_tiles;
  const int first = band * kBand;
  const int rows = min(kBand, groups - first);
  c = r / rows;
  group = first + r - c * rows;
}
__device__ __forceinline__ void decode_wide(int tile, int groups, int& row, int& column) {
  int group, c;
  decode(tile, kWideCols, groups, group, c);
  row = group * 512;
  column = c * kWide;
}
__device__ __forceinline__ void decode_narrow(int tile, int groups, int& row, int& column) {
  int group, c;
  decode(tile - kWideCols * groups, kNarrowCols, groups, group, c);
  row = (groups - 1 - group) * 512;
  column = kWideCols * kWide + c * kNarrow;
}

// ---------------------------------------------------------------- producer and consumers

// One thread. This block loads its 256 rows of A, and its part of the columns' rows of B for both blocks.
// y_b, offset_b: first row of that part, and its place in the stage. x, dx: first k and step (forwards or backwards).
template <int kWidth>
__device__ __forceinline__ void produce_tile(Ring<kStages>& ring, uint32_t smem, uint32_t full, uint32_t empty,
                                             const CUtensorMap* map_a, const CUtensorMap* map_b, uint32_t offset_b, int y_a,
                                             int y_b, int x, int dx) {
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    const uint32_t bar = full + 8 * ring.slot;
    const uint32_t stage = smem + ring.slot * kStage;
    mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
    mbar_expect_tx(bar, kBytesA + kWidth * 128);
    tma_load_multicast(stage + offset_b, map_b, bar, static_cast<uint16_t>(3), x, y_b);
    tma_load(stage, map_a, bar, x, y_a);
    x += dx;
    ring.next();
  }
}

template <int kCount>
__device__ __forceinline__ void issue_step(float (&d0)[kCount], float (&d1)[kCount], uint64_t a, uint64_t b,
                                           int accumulate) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wgmma_ss(d0, a + 2 * i, b + 2 * i, i > 0 ? 1 : accumulate);
    wgmma_ss(d1, a + 512 + 2 * i, b + 2 * i, i > 0 ? 1 : accumulate);
  }
  wgmma_commit();
}

// Warp: its 16 rows of 64 x (2 kCount) accumulators to C, in boxes of 16 x 64, three buffers in turn.
// at: where this lane's row of stmatrix goes in the first buffer, for chunks 0 and 1; for lane 0 that is the buffer's
// address. row: first row of the warp.
template <int kCount>
__device__ __forceinline__ void store_half(const float (&d)[kCount], uint32_t at, uint64_t policy, const CUtensorMap* map_c,
                                           __nv_bfloat16* c, int m, int lane, int row, int column) {
#pragma unroll
  for (int j = 0; j < 3; ++j) {
    const uint32_t here = at + j * kBox;
    if (lane == 0) tma_wait_read<2>();  // the store from this buffer, three ago, has been read
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i += 2) {  // chunks i and i + 1 of 16 bytes
      const float* v = d + 32 * j + 4 * i;
      stmatrix_x4(here ^ static_cast<uint32_t>(16 * i), pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                  pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
    }
    fence_async_smem();
    __syncwarp();
    if (lane == 0) {
      tma_store_hint(map_c, here, policy, column + 64 * j, row);
      tma_commit();
    }
  }
  if constexpr (kCount == 100) {  // the last 8 columns
    const int r = row + lane / 4;
    __nv_bfloat16* out = c + static_cast<int64_t>(r) * kN + (column + 192 + lane % 4 * 2);
    if (r < m) *reinterpret_cast<uint32_t*>(out) = pack_bf16(d[96], d[97]);
    if (r + 8 < m) *reinterpret_cast<uint32_t*>(out + 8 * kN) = pack_bf16(d[98], d[99]);
  }
  __syncwarp();
}

// Warpgroup: 128 x kWidth of the tile. empty_mapped: the empty barriers of block (lane & 1) of the cluster. row: first row
// of this warp in the first 64 rows.
template <int kWidth>
__device__ __forceinline__ void consume_tile(Ring<kStages>& ring, uint32_t full, uint32_t empty_mapped, uint64_t desc_a,
                                             uint64_t desc_b, uint32_t at, uint64_t policy, const CUtensorMap* map_c,
                                             __nv_bfloat16* c, int m, int half, int lane, int row, int column) {
  float d0[kWidth / 2], d1[kWidth / 2];
  const bool releases = lane < 2;

  // Consumer 1 stays a step behind consumer 0, so that the epilogue of one runs beside products of the other.
  if (half == 1) named_sync(3, 256);

  mbar_wait(full + 8 * ring.slot, ring.phase);
  issue_step(d0, d1, desc_a + ring.slot * kStageDesc, desc_b + ring.slot * kStageDesc, 0);
  int previous = ring.slot;
  ring.next();

  mbar_wait(full + 8 * ring.slot, ring.phase);
  issue_step(d0, d1, desc_a + ring.slot * kStageDesc, desc_b + ring.slot * kStageDesc, 1);
  wgmma_wait<1>();
  if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
  previous = ring.slot;
  ring.next();
  __syncwarp();
  if (half == 0) named_arrive(3, 256);

#pragma unroll 1
  for (int k = 2; k < kSteps; ++k) {
    mbar_wait(full + 8 * ring.slot, ring.phase);
    issue_step(d0, d1, desc_a + ring.slot * kStageDesc, desc_b + ring.slot * kStageDesc, 1);
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

  store_half(d0, at, policy, map_c, c, m, lane, row, column);
  store_half(d1, at, policy, map_c, c, m, lane, row + 64, column);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b96,
                const __grid_constant__ CUtensorMap map_b104, const __grid_constant__ CUtensorMap map_c,
                __nv_bfloat16* c, int m, int groups) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const uint32_t full = smem + kBarrierOffset;
  const uint32_t empty = full + 8 * kStages;
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  const int rank = static_cast<int>(cluster_rank());
  const int first = static_cast<int>(blockIdx.x) / 2;
  const int stride = static_cast<int>(gridDim.x) / 2;
  const int wides = kWideCols * groups;
  const int total = (kWideCols + kNarrowCols) * groups;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b96);
    tma_prefetch_map(&map_b104);
    tma_prefetch_map(&map_c);
    for (int i = 0; i < kStages; ++i) {
      mbar_init(full + 8 * i, 1);
      mbar_init(empty + 8 * i, 16);  // 8 consumer warps of each of the two blocks
    }
    fence_mbarrier_init();
  }
  __syncwarp();
  cluster_sync();

  if (role == 0) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      Ring<kStages> ring;
      int tile = first, row, column;
      int x = 0, dx = 64;  // k forwards in one tile, backwards in the next
      for (; tile < wides; tile += stride) {
        decode_wide(tile, groups, row, column);
        // 200 = 104 + 96, both multiples of 8 rows
        if (rank == 0) {
          produce_tile<kWide>(ring, smem, full, empty, &map_a, &map_b104, kBytesA, row, column, x, dx);
        } else {
          produce_tile<kWide>(ring, smem, full, empty, &map_a, &map_b96, kBytesA + 104 * 128, row + 256, column + 104, x,
                              dx);
        }
        x = (kSteps - 1) * 64 - x;
        dx = -dx;
      }
      for (; tile < total; tile += stride) {
        decode_narrow(tile, groups, row, column);
        produce_tile<kNarrow>(ring, smem, full, empty, &map_a, &map_b96, kBytesA + rank * (96 * 128), row + rank * 256,
                              column + rank * 96, x, dx);
        x = (kSteps - 1) * 64 - x;
        dx = -dx;
      }
    }
    __syncwarp();
  } else {
    setmaxnreg_inc<240>();
    const int half = role - 1;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) % 128 / 32);
    const uint32_t empty_mapped = cluster_map(empty, static_cast<uint32_t>(lane & 1));
    const uint64_t desc_a = desc_k_major(smem + half * 16384);
    const uint64_t desc_b = desc_k_major(smem + kBytesA);
    // stmatrix: lane l gives row l % 16 of the box, chunk l / 16 (then 2, 4, 6 further); chunk c of row r lies at c ^ (r % 8).
    const uint32_t at = smem + kStagingOffset + static_cast<uint32_t>(half * 4 + warp) * (3 * kBox) +
                        static_cast<uint32_t>(lane % 16 * 128 + ((lane / 16) ^ (lane % 8)) * 16);
    const uint64_t policy = policy_evict_first();
    const int my_row = rank * 256 + half * 128 + warp * 16;
    Ring<kStages> ring;
    int tile = first, row, column;
    for (; tile < wides; tile += stride) {
      decode_wide(tile, groups, row, column);
      consume_tile<kWide>(ring, full, empty_mapped, desc_a, desc_b, at, policy, &map_c, c, m, half, lane, row + my_row,
                          column);
    }
    for (; tile < total; tile += stride) {
      decode_narrow(tile, groups, row, column);
      consume_tile<kNarrow>(ring, full, empty_mapped, desc_a, desc_b, at, policy, &map_c, c, m, half, lane, row + my_row,
                            column);
    }
    if (lane == 0) tma_wait<0>();
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
  const int groups = static_cast<int>((m + 511) / 512);
  const int total = (kWideCols + kNarrowCols) * groups;
  int clusters = sms / 2;
  if (clusters < 1) clusters = 1;
  if (clusters > total) clusters = total;

  const CUtensorMap map_a = make_matrix_map(A.data_ptr(), m, kK, 256);
  const CUtensorMap map_b96 = make_matrix_map(B.data_ptr(), kN, kK, 96);
  const CUtensorMap map_b104 = make_matrix_map(B.data_ptr(), kN, kK, 104);
  const CUtensorMap map_c = make_matrix_map(C.data_ptr(), m, kN, 16);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  check(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmemBytes)),
        "dynamic shared memory");
  gemm_kernel<<<static_cast<unsigned>(2 * clusters), 384, kSmemBytes, stream>>>(
      map_a, map_b96, map_b104, map_c, static_cast<__nv_bfloat16*>(C.data_ptr()), static_cast<int>(m), groups);
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
