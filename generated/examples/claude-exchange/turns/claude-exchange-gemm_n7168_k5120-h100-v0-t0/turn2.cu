// C = A B^T, bf16 in and out, fp32 accumulation. Persistent, warp-specialized, clusters of 2 x 2 blocks, multicast of A and B.
// Block tile: 256 rows x 200 columns; each of two consumer warpgroups has 128 rows, as two m64n200 accumulators.
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
constexpr int kCluster = 4;
constexpr int kWidth = 200;                                   // columns of a block
constexpr int kCols = (kN + 2 * kWidth - 1) / (2 * kWidth);   // 18 columns of 400 for clusters, the last one over the edge
constexpr int kBand = 8;                                      // row groups of 512 in a band
constexpr int kStagesA = 3;
constexpr int kStagesB = 4;
constexpr uint32_t kHalfA = 128 * 128;                        // 128 rows x 64 bf16: one consumer's part of A
constexpr uint32_t kBytesB = kWidth * 128;                    // 200 rows x 64 bf16
constexpr int kFirstB = 104;                                  // 200 = 104 + 96, both multiples of 8 rows
constexpr uint32_t kOffsetB = kStagesA * 2 * kHalfA;
constexpr uint32_t kStagingOffset = kOffsetB + kStagesB * kBytesB;
constexpr uint32_t kBox = 1024;                               // 8 x 64 bf16
constexpr uint32_t kBarrierOffset = kStagingOffset + 8 * 3 * kBox;
static_assert(kBytesB % 1024 == 0 && kStagingOffset % 1024 == 0, "alignment");
// Barriers, 8 bytes each, from kBarrierOffset: full A [2][kStagesA], full B, empty A, empty B.
constexpr uint32_t kFullB = 8 * 2 * kStagesA;
constexpr uint32_t kEmptyA = kFullB + 8 * kStagesB;
constexpr uint32_t kEmptyB = kEmptyA + 8 * kStagesA;
constexpr uint32_t kBarrierBytes = kEmptyB + 8 * kStagesB;
constexpr uint32_t kSmemBytes = kBarrierOffset + kBarrierBytes + 1024;
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

#define REGS_0_99                                       \
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
  "%88, %89, %90, %91, %92, %93, %94, %95, "            \
  "%96, %97, %98, %99"

__device__ __forceinline__ void wgmma_ss(float (&d)[100], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %102, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n200k16.f32.bf16.bf16 {" REGS_0_99
      "}, %100, %101, p, 1, 1, 0, 0;\n}"
      : ACC_32(d, 0), ACC_32(d, 32), ACC_32(d, 64), ACC_4(d, 96)
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

// Tiles of a cluster: a row group of 512 rows x a column of 400. Bands of kBand row groups, row group fastest; every other
// band walks the columns backwards.
__device__ __forceinline__ void decode(int r, int groups, int& row, int& column) {
  constexpr int kBandTiles = kBand * kCols;
  const int band = r / kBandTiles;
  r -= band * kBandTiles;
  const int first = band * kBand;
  const int rows = min(kBand, groups - first);
  const int c = r / rows;
  row = (first + r - c * rows) * 512;
  column = ((band & 1) ? kCols - 1 - c : c) * (2 * kWidth);
}

// ---------------------------------------------------------------- producers

// One thread each; x, dx: first k and step (forwards or backwards). The consumers arm the full barriers.
__device__ __forceinline__ void produce_a(Ring<kStagesA>& ring, uint32_t dst, uint32_t full, uint32_t empty,
                                          const CUtensorMap* map, uint16_t mask, int y, int x, int dx) {
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
    tma_load_multicast(dst + ring.slot * (2 * kHalfA), map, full + 8 * ring.slot, mask, x, y);
    x += dx;
    ring.next();
  }
}
__device__ __forceinline__ void produce_b(Ring<kStagesB>& ring, uint32_t dst, uint32_t full, uint32_t empty,
                                          const CUtensorMap* map, uint16_t mask, int y, int x, int dx) {
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
    tma_load_multicast(dst + ring.slot * kBytesB, map, full + 8 * ring.slot, mask, x, y);
    x += dx;
    ring.next();
  }
}

// ---------------------------------------------------------------- consumers

struct Consumer {
  Ring<kStagesA> ring_a;
  Ring<kStagesB> ring_b;
  uint32_t full_a, full_b;  // barriers of this consumer's part of A, and of B
  uint32_t empty;           // lane 0: empty A in the block that sends it; lanes 1, 2: empty B in the two blocks that share B
  uint64_t desc_a, desc_b;
};

// Waits for the next step of both operands, issues its products, arms the barriers for the slots' next round. Returns what
// this lane has to arrive at when the products are done.
__device__ __forceinline__ uint32_t step(Consumer& s, float (&d0)[100], float (&d1)[100], int accumulate, int half, int t) {
  const int slot_a = s.ring_a.slot, slot_b = s.ring_b.slot;
  const uint32_t bar_a = s.full_a + 8 * slot_a, bar_b = s.full_b + 8 * slot_b;
  mbar_wait(bar_b, s.ring_b.phase);
  mbar_wait(bar_a, s.ring_a.phase);
  const uint64_t a = s.desc_a + slot_a * (2 * kHalfA >> 4);
  const uint64_t b = s.desc_b + slot_b * (kBytesB >> 4);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    wgmma_ss(d0, a + 2 * i, b + 2 * i, i > 0 ? 1 : accumulate);
    wgmma_ss(d1, a + 512 + 2 * i, b + 2 * i, i > 0 ? 1 : accumulate);
  }
  wgmma_commit();
  if (t == 0) {
    mbar_expect_tx(bar_a, kHalfA);
    if (half == 0) mbar_expect_tx(bar_b, kBytesB);
  }
  __syncwarp();
  s.ring_a.next();
  s.ring_b.next();
  return s.empty + 8 * (t % 32 == 0 ? slot_a : slot_b);
}

// Warp: its 16 rows of 64 x 200 accumulators to C, in boxes of 8 x 64, three buffers. row: first row of the warp.
__device__ __forceinline__ void store_half(const float (&d)[100], uint32_t staging, uint32_t lane_offset, uint64_t policy,
                                           const CUtensorMap* map_c, __nv_bfloat16* c, int m, int lane, int row,
                                           int column) {
#pragma unroll
  for (int g = 0; g < 3; ++g) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const uint32_t box = staging + ((2 * g + u) % 3) * kBox;
      const uint32_t at = box + lane_offset;
      if (lane == 0) tma_wait_read<2>();  // the store from this box, three ago, has been read
      __syncwarp();
      const float* v = d + 32 * g + 2 * u;
      stmatrix_x4(at, pack_bf16(v[0], v[1]), pack_bf16(v[4], v[5]), pack_bf16(v[8], v[9]), pack_bf16(v[12], v[13]));
      stmatrix_x4(at ^ 64u, pack_bf16(v[16], v[17]), pack_bf16(v[20], v[21]), pack_bf16(v[24], v[25]),
                  pack_bf16(v[28], v[29]));
      fence_async_smem();
      __syncwarp();
      if (lane == 0) {
        tma_store_hint(map_c, box, policy, column + 64 * g, row + 8 * u);
        tma_commit();
      }
    }
  }
  __syncwarp();
  if (column + 192 < kN) {  // the last 8 columns
    const int r = row + lane / 4;
    __nv_bfloat16* out = c + static_cast<int64_t>(r) * kN + (column + 192 + lane % 4 * 2);
    if (r < m) *reinterpret_cast<uint32_t*>(out) = pack_bf16(d[96], d[97]);
    if (r + 8 < m) *reinterpret_cast<uint32_t*>(out + 8 * kN) = pack_bf16(d[98], d[99]);
  }
  __syncwarp();
}

// Warpgroup: 128 x 200 of the tile. row: first row of the warp in the first 64 rows.
__device__ __forceinline__ void consume_tile(Consumer& s, uint32_t staging, uint32_t lane_offset, uint64_t policy,
                                             const CUtensorMap* map_c, __nv_bfloat16* c, int m, int half, int t, int row,
                                             int column) {
  float d0[100], d1[100];
  const bool releases = t % 32 < 3;

  // Consumer 1 stays a step behind consumer 0, so that the epilogue of one runs beside products of the other.
  if (half == 1) named_sync(3, 256);

  uint32_t previous = step(s, d0, d1, 0, half, t);
  {
    const uint32_t current = step(s, d0, d1, 1, half, t);
    wgmma_wait<1>();
    if (releases) mbar_arrive_mapped(previous);
    previous = current;
  }
  __syncwarp();
  if (half == 0) named_arrive(3, 256);

#pragma unroll 1
  for (int k = 2; k < kSteps; ++k) {
    const uint32_t current = step(s, d0, d1, 1, half, t);
    wgmma_wait<1>();  // the step before has been read
    if (releases) mbar_arrive_mapped(previous);
    previous = current;
  }
  wgmma_wait<0>();
  if (releases) mbar_arrive_mapped(previous);
  __syncwarp();
  pin(d0);
  pin(d1);

  store_half(d0, staging, lane_offset, policy, map_c, c, m, t % 32, row, column);
  store_half(d1, staging, lane_offset, policy, map_c, c, m, t % 32, row + 64, column);
}

__global__ void __launch_bounds__(384, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b96,
                const __grid_constant__ CUtensorMap map_b104, const __grid_constant__ CUtensorMap map_c,
                __nv_bfloat16* c, int m, int groups) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const uint32_t bars = smem + kBarrierOffset;
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  const int rank = static_cast<int>(cluster_rank());
  const int rank_m = rank >> 1, rank_n = rank & 1;
  const int first = static_cast<int>(blockIdx.x) / kCluster;
  const int stride = static_cast<int>(gridDim.x) / kCluster;
  const int total = kCols * groups;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b96);
    tma_prefetch_map(&map_b104);
    tma_prefetch_map(&map_c);
    for (int i = 0; i < 2 * kStagesA; ++i) mbar_init(bars + 8 * i, 1);
    for (int i = 0; i < kStagesB; ++i) {
      mbar_init(bars + kFullB + 8 * i, 1);
      mbar_init(bars + kEmptyB + 8 * i, 16);  // 8 consumer warps of each of the two blocks that share B
    }
    for (int i = 0; i < kStagesA; ++i) mbar_init(bars + kEmptyA + 8 * i, 8);  // 4 warps of each of the two that share A
    fence_mbarrier_init();
    // The first round of the full barriers; the consumers arm the later ones.
    for (int i = 0; i < 2 * kStagesA; ++i) mbar_expect_tx(bars + 8 * i, kHalfA);
    for (int i = 0; i < kStagesB; ++i) mbar_expect_tx(bars + kFullB + 8 * i, kBytesB);
  }
  __syncwarp();
  cluster_sync();

  if (role == 0) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      // Block rank_n of a pair sends the half of A that consumer rank_n reads, to both blocks of the pair.
      Ring<kStagesA> ring;
      const uint32_t dst = smem + rank_n * kHalfA;
      const uint32_t full = bars + 8 * kStagesA * rank_n;
      const uint16_t mask = static_cast<uint16_t>(3 << (2 * rank_m));
      int x = 0, dx = 64;  // k forwards in one tile, backwards in the next
      for (int tile = first; tile < total; tile += stride) {
        int row, column;
        decode(tile, groups, row, column);
        produce_a(ring, dst, full, bars + kEmptyA, &map_a, mask, row + rank_m * 256 + rank_n * 128, x, dx);
        x = (kSteps - 1) * 64 - x;
        dx = -dx;
      }
    } else if (threadIdx.x == 32) {
      // Block rank_m of those with the same columns sends rows 0 .. 103 or 104 .. 199 of B to both.
      Ring<kStagesB> ring;
      const uint16_t mask = static_cast<uint16_t>(5 << rank_n);
      int x = 0, dx = 64;
      for (int tile = first; tile < total; tile += stride) {
        int row, column;
        decode(tile, groups, row, column);
        column += rank_n * kWidth;
        if (rank_m == 0) {
          produce_b(ring, smem + kOffsetB, bars + kFullB, bars + kEmptyB, &map_b104, mask, column, x, dx);
        } else {
          produce_b(ring, smem + kOffsetB + kFirstB * 128, bars + kFullB, bars + kEmptyB, &map_b96, mask, column + kFirstB,
                    x, dx);
        }
        x = (kSteps - 1) * 64 - x;
        dx = -dx;
      }
    }
    __syncwarp();
  } else {
    setmaxnreg_inc<240>();
    const int half = role - 1;
    const int t = static_cast<int>(threadIdx.x) % 128;
    const int lane = t % 32;
    const int warp = warp_uniform(t / 32);
    Consumer s;
    s.full_a = bars + 8 * kStagesA * half;
    s.full_b = bars + kFullB;
    s.desc_a = desc_k_major(smem + half * kHalfA);
    s.desc_b = desc_k_major(smem + kOffsetB);
    {
      const uint32_t local = lane == 0 ? bars + kEmptyA : bars + kEmptyB;
      const int target = lane == 0 ? ((rank & 2) | half) : lane == 1 ? rank : (rank ^ 2);
      s.empty = cluster_map(local, static_cast<uint32_t>(target));
    }
    const uint32_t staging = smem + kStagingOffset + (half * 4 + warp) * (3 * kBox);
    // stmatrix: lane 8 i + r gives row r of matrix i, which is chunk i (then 4 + i) of the row.
    const uint32_t lane_offset = static_cast<uint32_t>(lane % 8 * 128 + ((lane / 8) ^ (lane % 8)) * 16);
    const uint64_t policy = policy_evict_first();
    const int my_row = rank_m * 256 + half * 128 + warp * 16;
    const int my_column = rank_n * kWidth;
#pragma unroll 1
    for (int tile = first; tile < total; tile += stride) {
      int row, column;
      decode(tile, groups, row, column);
      consume_tile(s, staging, lane_offset, policy, &map_c, c, m, half, t, row + my_row, column + my_column);
    }
    if (lane == 0) tma_wait<0>();
    __syncwarp();
  }
  cluster_sync();  // the peers' arrivals and copies need this block's shared memory
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
  const int total = kCols * groups;

  const CUtensorMap map_a = make_matrix_map(A.data_ptr(), m, kK, 128);
  const CUtensorMap map_b96 = make_matrix_map(B.data_ptr(), kN, kK, kWidth - kFirstB);
  const CUtensorMap map_b104 = make_matrix_map(B.data_ptr(), kN, kK, kFirstB);
  const CUtensorMap map_c = make_matrix_map(C.data_ptr(), m, kN, 8);

  check(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmemBytes)),
        "dynamic shared memory");

  int clusters = sms / kCluster;
  if (clusters < 1) clusters = 1;
  cudaLaunchAttribute attributes[1];
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim.x = kCluster;
  attributes[0].val.clusterDim.y = 1;
  attributes[0].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(kCluster * clusters), 1, 1);
  config.blockDim = dim3(384, 1, 1);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  config.attrs = attributes;
  config.numAttrs = 1;

  // As many clusters as run at the same time, but no more than the number of waves needs.
  int active = 0;
  if (cudaOccupancyMaxActiveClusters(&active, gemm_kernel, &config) != cudaSuccess) {
    (void)cudaGetLastError();
    active = 0;
  }
  if (active >= 1 && active < clusters) clusters = active;
  const int waves = (total + clusters - 1) / clusters;
  clusters = (total + waves - 1) / waves;
  config.gridDim = dim3(static_cast<unsigned>(kCluster * clusters), 1, 1);

  check(cudaLaunchKernelEx(&config, gemm_kernel, map_a, map_b96, map_b104, map_c,
                           static_cast<__nv_bfloat16*>(C.data_ptr()), static_cast<int>(m), groups),
        "launching gemm_kernel");
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
