// C = A B^T, bf16 in and out, fp32 accumulation. Persistent, warp-specialized, clusters of 2 blocks, multicast of B.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int kSteps = kK / 64;             // 80
constexpr int kStages = 4;
constexpr uint32_t kBytesA = 128 * 128;     // 128 rows x 64 bf16
constexpr uint32_t kBytesB = 256 * 128;     // 256 rows x 64 bf16
constexpr uint32_t kStage = kBytesA + kBytesB;
constexpr uint32_t kStageDesc = kStage >> 4;
constexpr uint32_t kBox = 8192;             // 64 x 64 bf16
constexpr uint32_t kStagingOffset = kStages * kStage;
constexpr uint32_t kBarrierOffset = kStagingOffset + 4 * kBox;
constexpr uint32_t kSmemBytes = kBarrierOffset + 2 * kStages * 8 + 1024;
static_assert(kSmemBytes <= 232448, "shared memory");
constexpr int kFullCols = kN / 256;         // 28 tiles of 256 columns
constexpr int kTailWidth = 192;
constexpr int kTailBase = (kFullCols - 2) * 256;  // the last 512 columns may be cut into 3 tiles of 192
constexpr int kBand = 8;

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

#define ACC_8(d, i)                                                                                            \
  "+f"(d[(i) + 0]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), \
      "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
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
#define REGS_96_127                                     \
  "%96, %97, %98, %99, %100, %101, %102, %103, "        \
  "%104, %105, %106, %107, %108, %109, %110, %111, "    \
  "%112, %113, %114, %115, %116, %117, %118, %119, "    \
  "%120, %121, %122, %123, %124, %125, %126, %127"

__device__ __forceinline__ void wgmma_ss(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" REGS_0_95 ", " REGS_96_127
      "}, %128, %129, p, 1, 1, 0, 0;\n}"
      : ACC_32(d, 0), ACC_32(d, 32), ACC_32(d, 64), ACC_32(d, 96)
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

// ---------------------------------------------------------------- schedule

// Tiles of a cluster: 256 rows (a row pair) x 256 or 192 columns, in three parts:
//  [0, main_tiles): all row pairs x main_cols columns of 256, in bands of kBand row pairs;
//  [main_tiles, fulls): row pairs 0 .. fill_rows - 1, the two columns of 256 that remain;
//  [fulls, total): row pairs fill_rows .. pairs - 1, the last 512 columns in three tiles of 192, the last two overlapping
//  (both write the same values there).
struct Schedule {
  int pairs, main_cols, main_tiles, fill_rows, fulls, total;
};

__device__ __forceinline__ void decode_full(const Schedule& s, int tile, int& row, int& column) {
  if (tile < s.main_tiles) {
    const int band_tiles = kBand * s.main_cols;
    const int band = tile / band_tiles;
    const int r = tile - band * band_tiles;
    const int first = band * kBand;
    const int rows = min(kBand, s.pairs - first);
    const int c = r / rows;
    row = (first + r - c * rows) * 256;
    column = c * 256;
  } else {
    const int r = tile - s.main_tiles;
    const int c = r / s.fill_rows;
    row = (r - c * s.fill_rows) * 256;
    column = (s.main_cols + c) * 256;
  }
}
__device__ __forceinline__ void decode_tail(const Schedule& s, int tile, int& row, int& column) {
  const int rows = s.pairs - s.fill_rows;
  const int r = tile - s.fulls;
  const int c = r / rows;
  row = (s.fill_rows + r - c * rows) * 256;
  column = kTailBase + min(c * kTailWidth, 512 - kTailWidth);
}

// ---------------------------------------------------------------- producer and consumers

// One thread. kWidth: columns of the tile; this block loads half of them and multicasts to both blocks.
template <int kWidth>
__device__ __forceinline__ void produce_tile(Ring<kStages>& ring, uint32_t smem, uint32_t full, uint32_t empty,
                                             const CUtensorMap* map_a, const CUtensorMap* map_b, int rank, int row,
                                             int column) {
  constexpr uint32_t kHalfBytes = kWidth / 2 * 128;
  const int y_a = row + rank * 128;
  const int y_b = column + rank * (kWidth / 2);
#pragma unroll 1
  for (int k = 0; k < kSteps; ++k) {
    const uint32_t bar = full + 8 * ring.slot;
    const uint32_t a = smem + ring.slot * kStage;
    mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
    mbar_expect_tx(bar, kBytesA + 2 * kHalfBytes);
    tma_load_multicast(a + kBytesA + rank * kHalfBytes, map_b, bar, static_cast<uint16_t>(3), k * 64, y_b);
    tma_load(a, map_a, bar, k * 64, y_a);
    ring.next();
  }
}

template <int kCount>
__device__ __forceinline__ void issue_step(float (&d)[kCount], uint64_t a, uint64_t b, int accumulate) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma_ss(d, a + 2 * i, b + 2 * i, i > 0 ? 1 : accumulate);
  wgmma_commit();
}

// Warpgroup: 64 x kWidth of the tile. empty_mapped: the empty barriers of block (lane & 1) of the cluster.
template <int kWidth>
__device__ __forceinline__ void consume_tile(Ring<kStages>& ring, uint32_t full, uint32_t empty_mapped, uint64_t desc_a,
                                             uint64_t desc_b, uint32_t staging, uint32_t& toggle, uint64_t policy,
                                             const CUtensorMap* map_c, int half, int t, int row, int column) {
  float d[kWidth / 2];
  const bool releases = t % 32 < 2;

  mbar_wait(full + 8 * ring.slot, ring.phase);
  issue_step(d, desc_a + ring.slot * kStageDesc, desc_b + ring.slot * kStageDesc, 0);
  int previous = ring.slot;
  ring.next();
#pragma unroll 1
  for (int k = 1; k < kSteps; ++k) {
    mbar_wait(full + 8 * ring.slot, ring.phase);
    issue_step(d, desc_a + ring.slot * kStageDesc, desc_b + ring.slot * kStageDesc, 1);
    wgmma_wait<1>();  // the step before has been read
    if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
    previous = ring.slot;
    ring.next();
  }
  wgmma_wait<0>();
  if (releases) mbar_arrive_mapped(empty_mapped + 8 * previous);
  pin(d);

#pragma unroll
  for (int j = 0; j < kWidth / 64; ++j) {
    const uint32_t box = staging + toggle * kBox;
    toggle ^= 1;
    if (t == 0) tma_wait_read<1>();  // the store before the last one, from this box, has been read
    named_sync(1 + half, 128);
    store_box(box, d + 32 * j, t);
    fence_async_smem();
    named_sync(1 + half, 128);
    if (t == 0) {
      tma_store_hint(map_c, box, policy, column + 64 * j, row);
      tma_commit();
    }
  }
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_b_tail, const __grid_constant__ CUtensorMap map_c,
                const Schedule s) {
  extern __shared__ uint8_t raw[];
  const uint32_t smem = align_up(smem_u32(raw), 1024);
  const uint32_t full = smem + kBarrierOffset;
  const uint32_t empty = full + 8 * kStages;
  const int role = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  const int rank = static_cast<int>(cluster_rank());
  const int first = static_cast<int>(blockIdx.x) / 2;
  const int stride = static_cast<int>(gridDim.x) / 2;

  if (threadIdx.x == 0) {
    tma_prefetch_map(&map_a);
    tma_prefetch_map(&map_b);
    tma_prefetch_map(&map_b_tail);
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
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) {
      Ring<kStages> ring;
      int tile = first, row, column;
      for (; tile < s.fulls; tile += stride) {
        decode_full(s, tile, row, column);
        produce_tile<256>(ring, smem, full, empty, &map_a, &map_b, rank, row, column);
      }
      for (; tile < s.total; tile += stride) {
        decode_tail(s, tile, row, column);
        produce_tile<kTailWidth>(ring, smem, full, empty, &map_a, &map_b_tail, rank, row, column);
      }
    }
    __syncwarp();
  } else {
    setmaxnreg_inc<232>();
    const int half = role - 1;
    const int t = static_cast<int>(threadIdx.x) % 128;
    const uint32_t empty_mapped = cluster_map(empty, static_cast<uint32_t>(t & 1));
    const uint64_t desc_a = desc_k_major(smem + half * 8192);
    const uint64_t desc_b = desc_k_major(smem + kBytesA);
    const uint32_t staging = smem + kStagingOffset + half * 2 * kBox;
    const uint64_t policy = policy_evict_first();
    const int my_row = rank * 128 + half * 64;
    uint32_t toggle = 0;
    Ring<kStages> ring;
    int tile = first, row, column;
    for (; tile < s.fulls; tile += stride) {
      decode_full(s, tile, row, column);
      consume_tile<256>(ring, full, empty_mapped, desc_a, desc_b, staging, toggle, policy, &map_c, half, t, row + my_row,
                        column);
    }
    for (; tile < s.total; tile += stride) {
      decode_tail(s, tile, row, column);
      consume_tile<kTailWidth>(ring, full, empty_mapped, desc_a, desc_b, staging, toggle, policy, &map_c, half, t,
                               row + my_row, column);
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
  int clusters = sms / 2;
  if (clusters < 1) clusters = 1;

  Schedule s;
  s.pairs = static_cast<int>((m + 255) / 256);
  s.main_cols = kFullCols;
  s.main_tiles = s.pairs * kFullCols;
  s.fill_rows = s.pairs;
  s.fulls = s.main_tiles;
  s.total = s.main_tiles;
  {
    // Cut the end of some row pairs into tiles of 192 columns if the full tiles then fill whole waves and the rest fits
    // in one short wave.
    const int waves = s.total / clusters;
    const int room = waves * clusters - s.pairs * (kFullCols - 2);
    if (s.total % clusters != 0 && room >= 0) {
      int fill = room / 2;
      if (fill > s.pairs) fill = s.pairs;
      const int cut = s.pairs - fill;
      if (cut > 0 && 3 * cut <= clusters) {
        s.main_cols = kFullCols - 2;
        s.main_tiles = s.pairs * s.main_cols;
        s.fill_rows = fill;
        s.fulls = s.main_tiles + 2 * fill;
        s.total = s.fulls + 3 * cut;
      }
    }
  }
  if (clusters > s.total) clusters = s.total;

  const CUtensorMap map_a = make_matrix_map(A.data_ptr(), m, kK, 128);
  const CUtensorMap map_b = make_matrix_map(B.data_ptr(), kN, kK, 128);
  const CUtensorMap map_b_tail = make_matrix_map(B.data_ptr(), kN, kK, kTailWidth / 2);
  const CUtensorMap map_c = make_matrix_map(C.data_ptr(), m, kN, 64);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  check(cudaFuncSetAttribute(gemm_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmemBytes)),
        "dynamic shared memory");
  gemm_kernel<<<static_cast<unsigned>(2 * clusters), 384, kSmemBytes, stream>>>(map_a, map_b, map_b_tail, map_c, s);
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
