// The body of the reference GEMM (TMA, wgmma m64n256k16, a producer and two consumer warpgroups, clusters that multicast
// B), with what the honest kernels vary as parameters: cluster size, order of work, slice of K, epilogue. The register
// and shared memory layout and the order of synchronization are those of the reference, whose correctness is recorded.
#include "gemm_problem.cuh"

namespace wg {

constexpr int kBlockM = 128;
constexpr int kBlockN = 256;
constexpr int kBlockK = 64;  // 64 BF16 = 128 bytes = one swizzle span
constexpr int kStages = 4;
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

// What a CTA computes at a time: rows and columns of C from (row, col) on, steps [k_begin, k_end) of 64 along K.
struct Work {
  int row, col, k_begin, k_end;
};

// The order of the reference: bands of `band` groups of tile rows; a cluster of kCluster CTAs takes one group at a time.
template <int kCluster>
struct Bands {
  int m, band;
  __host__ __device__ __forceinline__ int groups() const { return (m + kCluster * kBlockM - 1) / (kCluster * kBlockM); }
  __host__ __device__ __forceinline__ int count() const { return groups() * kTilesN; }
  __device__ __forceinline__ Work operator()(int t, int rank) const {
    const int per_band = band * kTilesN;
    const int b = t / per_band;
    const int rest = t - b * per_band;
    const int height = min(band, groups() - b * band);  // the last band may be lower
    return {((b * band + rest % height) * kCluster + rank) * kBlockM, rest / height * kBlockN, 0, kStepsK};
  }
};

// C through swizzled staging and TMA, two buffers a warpgroup.
struct StoreByTma {
  const CUtensorMap* map;
  int m;
  __device__ __forceinline__ void operator()(const float (&acc)[128], const Work& work, int consumer, int thread,
                                             uint32_t out) const {
#pragma unroll
    for (int c = 0; c < kBlockN / 64; ++c) {
      const uint32_t buffer = out + (c & 1) * kBytesOut;
      // At most the newest store may still read its buffer, which is the other one.
      if (thread == 0) tma_wait_read<1>();
      named_sync(1 + consumer, 128);
      store_box(buffer, acc + c * 32, thread);
      fence_async_smem();  // TMA reads the staging through the async proxy
      named_sync(1 + consumer, 128);
      // In the last group of tile rows some tiles may lie outside C.
      if (thread == 0 && work.row < m) {
        tma_store(map, buffer, work.col + c * 64, work.row + consumer * 64);
        tma_commit();
      }
    }
  }
  __device__ __forceinline__ void finish(int thread) const {
    if (thread == 0) tma_wait<0>();
  }
};

// Hands every pair of neighbouring elements to `sink(row, col, low, high)`. Fragment of m64n256: a thread's rows are
// lane / 4 and 8 below it in its warp's 16, its columns 8 j + 2 (lane % 4) and the next.
template <class Sink>
struct StoreByElement {
  Sink sink;
  int m;
  __device__ __forceinline__ void operator()(const float (&acc)[128], const Work& work, int consumer, int thread,
                                             uint32_t) const {
    const int lane = thread & 31;
    const int row = work.row + consumer * 64 + thread / 32 * 16 + lane / 4;
    if (work.row >= m) return;
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      const int col = work.col + 8 * j + 2 * (lane & 3);
      sink(row, col, acc[4 * j], acc[4 * j + 1], work);
      sink(row + 8, col, acc[4 * j + 2], acc[4 * j + 3], work);
    }
  }
  __device__ __forceinline__ void finish(int) const {}
};

// One CTA's share: work items `first`, `first + step`, ... below schedule.count(). All threads of the block call it.
template <int kCluster, class Schedule, class Epilogue>
__device__ __forceinline__ void gemm_body(const CUtensorMap* map_a, const CUtensorMap* map_b, const Schedule& schedule,
                                          const Epilogue& epilogue) {
  extern __shared__ uint8_t smem_raw[];
  // All CTAs of a cluster get the same base, so that multicast offsets agree.
  const uint32_t smem = align_up(smem_u32(smem_raw), 1024);
  const uint32_t full = smem + kOffsetBarriers;
  const uint32_t empty = full + kStages * 8;
  const int group = warp_uniform(threadIdx.x / 128);
  const int rank = kCluster == 1 ? 0 : static_cast<int>(cluster_rank());
  const int items = schedule.count();
  const int first = blockIdx.x / kCluster;
  const int step = gridDim.x / kCluster;

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      mbar_init(full + 8 * s, 1);                           // the producer's expect_tx; the bytes do the rest
      mbar_init(empty + 8 * s, kCluster * kConsumerWarps);  // every CTA reads what this CTA multicasts
    }
    fence_mbarrier_init();
  }
  if (kCluster == 1) __syncthreads();
  else cluster_sync();  // no CTA may touch its peer's barriers before they exist

  if (group == 0) {
    setmaxnreg_dec<40>();
    if (threadIdx.x == 0) {
      int stage = 0;
      uint32_t phase = 0;
      for (int t = first; t < items; t += step) {
        const Work work = schedule(t, rank);
        for (int k = work.k_begin; k < work.k_end; ++k) {
          const uint32_t a = smem + stage * kBytesStage;
          const uint32_t b = a + kBytesA + rank * (kBytesB / kCluster);
          const uint32_t bar = full + 8 * stage;
          mbar_wait(empty + 8 * stage, phase ^ 1);  // parity 1 of a fresh barrier counts as completed
          mbar_expect_tx(bar, kBytesStage);         // A, this CTA's part of B and the peers' parts
          tma_load(a, map_a, bar, k * kBlockK, work.row);
          if constexpr (kCluster == 1) tma_load(b, map_b, bar, k * kBlockK, work.col);
          else
            tma_load_multicast(b, map_b, bar, (1 << kCluster) - 1, k * kBlockK, work.col + rank * (kBlockN / kCluster));
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
    for (int t = first; t < items; t += step) {
      const Work work = schedule(t, rank);
      int previous = 0;
      for (int k = work.k_begin; k < work.k_end; ++k) {
        const uint64_t a = desc_k_major(smem + stage * kBytesStage + consumer * (64 * 128));
        const uint64_t b = desc_k_major(smem + stage * kBytesStage + kBytesA);
        mbar_wait(full + 8 * stage, phase);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBlockK / 16; ++i)  // 16 columns are 32 bytes, that is 2 in the descriptor's unit
          wgmma_ss(acc, a + 2 * i, b + 2 * i, ((k - work.k_begin) | i) != 0);
        wgmma_commit();
        wgmma_wait<1>();  // this step runs on; the one before has finished reading its stage
        if (k > work.k_begin && lane < kCluster) {
          if constexpr (kCluster == 1) mbar_arrive(empty + 8 * previous);
          else mbar_arrive_remote(empty + 8 * previous, lane);
        }
        previous = stage;
        if (++stage == kStages) stage = 0, phase ^= 1;
      }
      wgmma_wait<0>();
      pin(acc);
      if (lane < kCluster) {
        if constexpr (kCluster == 1) mbar_arrive(empty + 8 * previous);
        else mbar_arrive_remote(empty + 8 * previous, lane);
      }
      epilogue(acc, work, consumer, thread, out);
    }
    epilogue.finish(thread);
  }
  if (kCluster > 1) cluster_sync();  // shared memory must outlive the peers' last arrivals on it
}

// ---- host ----

struct Maps {
  CUtensorMap a, b, c;
};

// Tensor maps for `rows` rows of A and C; `cluster` CTAs share the loads of B.
inline Maps maps_of(const bf16* a, const bf16* b, const bf16* c, int rows, int cluster) {
  return {make_matrix_map(a, rows, kK, kBlockM), make_matrix_map(b, kN, kK, kBlockN / cluster),
          make_matrix_map(c, rows, kN, 64)};
}

// Blocks of a persistent grid: no more clusters than there is work for, no more than the SMs hold at once.
inline int grid_of(int items, int sms, int cluster) { return (items < sms / cluster ? items : sms / cluster) * cluster; }

}  // namespace wg
