// C[M,N] = A[M,K] B[N,K]^T in BF16 with FP32 accumulation, N = 7168 and K = 5120 fixed, M any multiple of 128.
//
// Schedule: a persistent grid of clusters of two CTAs. The two CTAs of a cluster compute vertically adjacent 128 x 256
// tiles of C. Both need the same 256 x 64 slice of B, so each loads one half of it and multicasts that half to both:
// this takes a third off the reads from L2. Each CTA has three warpgroups:
//   warpgroup 0: producer (40 registers a thread); one thread keeps a ring of four stages full with TMA loads
//   warpgroups 1, 2: consumers; each computes 64 x 256 of the tile with wgmma m64n256k16, 128 accumulators a thread
// The producer runs ahead into the next tile while the consumers write the last one. Tiles are walked in bands of 16
// tile rows so that the tiles in flight share rows of A and of B in L2.
// Epilogue: accumulators -> BF16 -> stmatrix into swizzled staging of 64 x 64 -> TMA store, two buffers a warpgroup.
//
// Shared memory: 4 stages x (A 16 KB + B 32 KB) + 2 x 2 x 8 KB staging = 224 KB, + barriers and alignment slack.
// Every tile row is 128 bytes wide with TMA's 128-byte swizzle: the 16-byte chunk c of row r lies at chunk c ^ (r % 8).
//
// Sources (PTX ISA): "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (register fragments, matrix
// descriptor), "Data Movement and Conversion Instructions: cp.async.bulk.tensor", "mbarrier", "Tensor: Swizzling Modes".
//
// All inline PTX is in functions of knowledge_packs/h100, whose text is the pack's, macros expanded.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int kBlockM = 128;
constexpr int kBlockN = 256;
constexpr int kBlockK = 64;  // 64 BF16 = 128 bytes = one swizzle span
constexpr int kStages = 4;
constexpr int kCluster = 2;
constexpr int kBandPairs = 8;  // a band holds this many vertical pairs of tiles
constexpr int kTilesN = kN / kBlockN;
constexpr int kStepsK = kK / kBlockK;
constexpr int kThreads = 384;
constexpr int kConsumerWarps = 8;

constexpr int kBytesA = kBlockM * kBlockK * 2;
constexpr int kBytesB = kBlockN * kBlockK * 2;
constexpr int kBytesStage = kBytesA + kBytesB;
constexpr int kBytesOut = 64 * 64 * 2;  // one staging buffer
constexpr int kOffsetOut = kStages * kBytesStage;
constexpr int kOffsetBarriers = kOffsetOut + 4 * kBytesOut;
constexpr int kSmemBytes = kOffsetBarriers + 2 * kStages * 8 + 1024;  // 1024: room to align the base
static_assert(kSmemBytes <= 232448, "more shared memory than a block may have");
static_assert(kN % kBlockN == 0 && kK % kBlockK == 0, "tiles must divide N and K");

// Address of a shared-memory object in the block's shared window.
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Next multiple of `n`, a power of two.
__host__ __device__ __forceinline__ constexpr uint32_t align_up(uint32_t x, uint32_t n) { return (x + n - 1) & ~(n - 1); }

// The shuffle lets the compiler see a uniform value.
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

// Makes the barriers known to the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

// Arrives on the barrier at the same offset in CTA `rank` of the cluster (which may be this CTA). The default scope will
// do: the arrival says that wgmma has finished reading, it publishes no ordinary stores.
__device__ __forceinline__ void mbar_arrive_remote(uint32_t bar, uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n"
      " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(bar), "r"(rank)
      : "memory");
}

__device__ __forceinline__ bool mbar_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  return done != 0;
}

// Returns once the phase of the given parity has completed.
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {}
}

// One box to `dst`; its bytes are counted on `bar`. x: column, y: row.
__device__ __forceinline__ void tma_load(uint32_t dst, const CUtensorMap* map, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(map), "r"(bar), "r"(x), "r"(y)
      : "memory");
}

// The data and the byte count go to the same offsets in every CTA named by the mask.
__device__ __forceinline__ void tma_load_multicast(uint32_t dst, const CUtensorMap* map, uint32_t bar, uint16_t mask, int x,
                                                   int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%4, %5}], [%2], %3;" ::"r"(dst),
      "l"(map), "r"(bar), "h"(mask), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(src), "r"(x),
               "r"(y)
               : "memory");
}

// The thread that stored: closes a group of stores; waits until at most kPending groups still read shared memory, or are
// unfinished.
__device__ __forceinline__ void tma_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void tma_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

template <int kPending>
__device__ __forceinline__ void tma_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// Between ordinary writes to shared memory and TMA's reads of it.
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

// Matrix descriptor: addresses and byte offsets in units of 16, the swizzle's code at the top. Tile bases are multiples of
// 1024, so the base offset is 0.
template <int kSwizzle>
__host__ __device__ __forceinline__ constexpr uint64_t smem_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  static_assert(kSwizzle == 128 || kSwizzle == 64 || kSwizzle == 32 || kSwizzle == 16, "no such swizzle");
  const uint64_t layout = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : kSwizzle == 32 ? 3 : 0;
  return (layout << 62) | (static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32) |
         (static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16) | ((addr & 0x3FFFF) >> 4);
}

// K-major operand, 128-byte swizzle: groups of 8 rows are 1024 bytes apart. The leading offset is not used by this layout.
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_k_major(uint32_t addr) {
  return smem_desc<kSwizzle>(addr, 16, 8 * kSwizzle);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operand lists for the accumulators.
#define WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

// d (64 x 256) = A (64 x 16) B (256 x 16)^T + (accumulate ? d : 0), both in shared memory; K-major by default
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_ss(float (&d)[128], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, p, 1, 1, %131, %132;\n}"
      : WG_4(d, 0), WG_4(d, 4), WG_4(d, 8), WG_4(d, 12), WG_4(d, 16), WG_4(d, 20), WG_4(d, 24), WG_4(d, 28),
        WG_4(d, 32), WG_4(d, 36), WG_4(d, 40), WG_4(d, 44), WG_4(d, 48), WG_4(d, 52), WG_4(d, 56), WG_4(d, 60),
        WG_4(d, 64), WG_4(d, 68), WG_4(d, 72), WG_4(d, 76), WG_4(d, 80), WG_4(d, 84), WG_4(d, 88), WG_4(d, 92),
        WG_4(d, 96), WG_4(d, 100), WG_4(d, 104), WG_4(d, 108), WG_4(d, 112), WG_4(d, 116), WG_4(d, 120), WG_4(d, 124)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB)
      : "memory");
}

// Tells the compiler that the asynchronous products may have changed the accumulators up to this point.
template <int kN>
__device__ __forceinline__ void pin(float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Where TMA with a swizzle of kBytes puts the byte at `offset` of a box whose rows are kBytes wide.
template <int kBytes = 128>
__host__ __device__ __forceinline__ constexpr uint32_t swizzle(uint32_t offset) {
  return offset ^ ((offset >> 3) & (kBytes - 16));
}

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

// 64 x 64 accumulators as BF16 into a swizzled box of 64 rows of 128 bytes, for tma_store. stmatrix takes the row addresses of
// matrix i from lanes 8i..8i+7. Matrices 0 and 1 are the upper and lower 8 rows of 8 columns, 2 and 3 the same of the next
// 8 columns.
__device__ __forceinline__ void store_box(uint32_t box, const float* d, int t) {
  const int row = t / 32 * 16 + t % 16;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float* v = d + 4 * j;
    stmatrix_x4(box + swizzle(row * 128 + (j + t % 32 / 16) * 16), pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]),
                pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7]));
  }
}

struct Tile {
  int row, col;  // first row of A and first row of B of this CTA's tile
};

// Tile number `t` of the cluster: inside a band the pairs of tile rows vary fastest.
__device__ __forceinline__ Tile tile_at(int t, int pairs, int rank) {
  constexpr int kPerBand = kBandPairs * kTilesN;
  const int band = t / kPerBand;
  const int rest = t - band * kPerBand;
  const int height = min(kBandPairs, pairs - band * kBandPairs);  // the last band may be lower
  const int pair = band * kBandPairs + rest % height;
  return {(pair * kCluster + rank) * kBlockM, rest / height * kBlockN};
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    gemm_kernel(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, int m) {
  extern __shared__ uint8_t smem_raw[];
  // Both CTAs of a cluster get the same base, so that multicast offsets agree.
  const uint32_t smem = align_up(smem_u32(smem_raw), 1024);
  const uint32_t full = smem + kOffsetBarriers;
  const uint32_t empty = full + kStages * 8;
  const int group = warp_uniform(threadIdx.x / 128);
  const int rank = static_cast<int>(cluster_rank());
  const int pairs = (m + kCluster * kBlockM - 1) / (kCluster * kBlockM);
  const int tiles = pairs * kTilesN;
  const int first_tile = blockIdx.x / kCluster;
  const int tile_step = gridDim.x / kCluster;

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbar_init(full + 8 * s, 1);                           // the producer's expect_tx; the bytes do the rest
      mbar_init(empty + 8 * s, kCluster * kConsumerWarps);  // both CTAs read what this CTA multicasts
    }
    fence_mbarrier_init();
  }
  cluster_sync();  // no CTA may touch its peer's barriers before they exist

  if (group == 0) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) {
      int stage = 0;
      uint32_t phase = 0;
      for (int t = first_tile; t < tiles; t += tile_step) {
        const Tile tile = tile_at(t, pairs, rank);
        for (int k = 0; k < kStepsK; ++k) {
          const uint32_t a = smem + stage * kBytesStage;
          const uint32_t b = a + kBytesA + rank * (kBytesB / kCluster);
          const uint32_t bar = full + 8 * stage;
          mbar_wait(empty + 8 * stage, phase ^ 1);  // parity 1 of a fresh barrier counts as completed
          mbar_expect_tx(bar, kBytesStage);         // A, this CTA's half of B and the peer's half
          tma_load(a, &map_a, bar, k * kBlockK, tile.row);
          tma_load_multicast(b, &map_b, bar, (1 << kCluster) - 1, k * kBlockK, tile.col + rank * (kBlockN / kCluster));
          if (++stage == kStages) stage = 0, phase ^= 1;
        }
      }
    }
  } else {
    setmaxnreg_inc<232>();
    const int consumer = group - 1;
    const int thread = threadIdx.x & 127;
    const int lane = thread & 31;
    const uint32_t out = smem + kOffsetOut + consumer * 2 * kBytesOut;
    float acc[128];
    int stage = 0;
    uint32_t phase = 0;
    for (int t = first_tile; t < tiles; t += tile_step) {
      const Tile tile = tile_at(t, pairs, rank);
      int previous = 0;
      for (int k = 0; k < kStepsK; ++k) {
        const uint64_t a = desc_k_major(smem + stage * kBytesStage + consumer * (64 * 128));
        const uint64_t b = desc_k_major(smem + stage * kBytesStage + kBytesA);
        mbar_wait(full + 8 * stage, phase);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBlockK / 16; ++i)  // 16 columns are 32 bytes, that is 2 in the descriptor's unit
          wgmma_ss(acc, a + 2 * i, b + 2 * i, (k | i) != 0);
        wgmma_commit();
        wgmma_wait<1>();  // this step runs on; the one before has finished reading its stage
        if (k > 0 && lane < kCluster) mbar_arrive_remote(empty + 8 * previous, lane);
        previous = stage;
        if (++stage == kStages) stage = 0, phase ^= 1;
      }
      wgmma_wait<0>();
      pin(acc);
      if (lane < kCluster) mbar_arrive_remote(empty + 8 * previous, lane);

#pragma unroll
      for (int c = 0; c < kBlockN / 64; ++c) {
        const uint32_t buffer = out + (c & 1) * kBytesOut;
        // At most the newest store may still read its buffer, which is the other one.
        if (thread == 0) tma_wait_read<1>();
        named_sync(1 + consumer, 128);
        store_box(buffer, acc + c * 32, thread);
        fence_async_smem();  // TMA reads the staging through the async proxy
        named_sync(1 + consumer, 128);
        // With an odd number of tile rows the last pair's second tile lies outside C.
        if (thread == 0 && tile.row < m) {
          tma_store(&map_c, buffer, tile.col + c * 64, tile.row + consumer * 64);
          tma_commit();
        }
      }
    }
    if (thread == 0) tma_wait<0>();
  }
  cluster_sync();  // shared memory must outlive the peer's last arrivals on it
}

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

inline cudaStream_t stream_of(const tvm::ffi::TensorView& t) {
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id));
}

template <class Kernel>
inline void allow_smem(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "dynamic shared memory");
}

inline uint32_t element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_UINT32: return 4;
    default: TVM_FFI_THROW(ValueError) << "no size for tensor map type " << static_cast<int>(type); return 0;
  }
}

// A packed tensor, innermost dimension first, seen by TMA in boxes.
template <int kRank>
inline CUtensorMap make_tensor_map(CUtensorMapDataType type, const void* data, const uint64_t (&dims)[kRank],
                                   const uint32_t (&box)[kRank],
                                   CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                   const uint64_t* strides = nullptr) {
  static_assert(1 <= kRank && kRank <= 5, "TMA takes 1 to 5 dimensions");
  cuuint64_t sizes[kRank], bytes[kRank];  // bytes[i]: stride of dimension i + 1
  cuuint32_t boxes[kRank], steps[kRank];
  for (int i = 0; i < kRank; ++i) {
    sizes[i] = dims[i];
    boxes[i] = box[i];
    steps[i] = 1;
    bytes[i] = (strides && i + 1 < kRank) ? strides[i] : dims[i] * (i > 0 ? bytes[i - 1] : element_bytes(type));
  }
  CUtensorMap map;
  const CUresult result = cuTensorMapEncodeTiled(
      &map, type, kRank, const_cast<void*>(data), sizes, bytes, boxes, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: error " << static_cast<int>(result);
  return map;
}

// A row-major matrix of BF16 seen by TMA in boxes of 64 columns with 128-byte swizzle.
inline CUtensorMap make_matrix_map(const void* data, int64_t rows, int64_t columns, uint32_t box_rows,
                                   uint32_t box_columns = 64, CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  const uint64_t dims[2] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)};
  const uint32_t box[2] = {box_columns, box_rows};
  return make_tensor_map(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, data, dims, box, swizzle);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() != 2 || B.ndim() != 2 || C.ndim() != 2 || A.size(1) != kK || B.size(0) != kN || B.size(1) != kK ||
      C.size(0) != A.size(0) || C.size(1) != kN)
    TVM_FFI_THROW(RuntimeError) << "expected A[M," << kK << "], B[" << kN << "," << kK << "], C[M," << kN << "]";
  const int64_t rows = A.size(0);
  if (rows <= 0 || rows % kBlockM != 0 || rows > (1 << 24))
    TVM_FFI_THROW(RuntimeError) << "M must be a positive multiple of " << kBlockM << ", got " << rows;
  const int m = static_cast<int>(rows);
  const CUtensorMap map_a = make_matrix_map(A.data_ptr(), m, kK, kBlockM);
  const CUtensorMap map_b = make_matrix_map(B.data_ptr(), kN, kK, kBlockN / kCluster);
  const CUtensorMap map_c = make_matrix_map(C.data_ptr(), m, kN, 64);
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id), "cudaDeviceGetAttribute");
  allow_smem(gemm_kernel, kSmemBytes);
  const int tiles = (m + kCluster * kBlockM - 1) / (kCluster * kBlockM) * kTilesN;
  const int clusters = tiles < sms / kCluster ? tiles : sms / kCluster;
  const cudaStream_t stream = stream_of(A);
  gemm_kernel<<<clusters * kCluster, kThreads, kSmemBytes, stream>>>(map_a, map_b, map_c, m);
  check(cudaGetLastError(), "launching gemm_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
