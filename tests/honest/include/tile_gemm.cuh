// The body of the fixtures' generic GEMM (mma.sync, ldmatrix, cp.async; measured as correct) with what the honest kernels
// vary as parameters: which tile, which slice of K, what becomes of the sums. No target instruction is in it.
//
// One block of 4 warps per 128 x 128 tile, each warp a 64 x 64 quarter; K in steps of 64 through a ring of 3 stages. A row
// of 64 bf16 is 128 bytes, eight 16-byte chunks; chunk j of row r lies at chunk j ^ (r % 8).
#include "gemm_problem.cuh"

namespace mma {

constexpr int kTile = 128;
constexpr int kBlockK = 64;
constexpr int kStages = 3;
constexpr int kThreads = 128;
constexpr int kTileBytes = kTile * kBlockK * 2;
constexpr int kStageBytes = 2 * kTileBytes;
constexpr int kSmemBytes = kStages * kStageBytes;
constexpr int kTilesN = kN / kTile;
constexpr int kStepsK = kK / kBlockK;
constexpr int kGroupN = 8;  // tiles of C that run together are 8 wide, so that their rows of A and B stay in L2
static_assert(kTilesN % kGroupN == 0, "the walk over tiles has no remainder");

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void copy_async(uint32_t shared, const bf16* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct Tile {
  int row, col;
};

// Tile number `t` of C with `tiles_m` tile rows.
__host__ __device__ __forceinline__ Tile tile_at(int t, int tiles_m) {
  return {t / kGroupN % tiles_m * kTile, (t / (kGroupN * tiles_m) * kGroupN + t % kGroupN) * kTile};
}

// Starts the copies of one stage. `shared` is this thread's chunk of row `thread / 8`; `a` and `b` are what belongs
// there. Rows advance by 16, a multiple of 8, so the swizzled chunk stays the same.
__device__ __forceinline__ void load_stage(uint32_t shared, const bf16* a, const bf16* b) {
#pragma unroll
  for (int i = 0; i < kTile / 16; ++i) {
    copy_async(shared + i * 16 * kBlockK * 2, a + i * 16 * kK);
    copy_async(shared + kTileBytes + i * 16 * kBlockK * 2, b + i * 16 * kK);
  }
}

// Adds one stage (64 of K) to a warp's 64 x 64 accumulators.
__device__ __forceinline__ void multiply_stage(float (&acc)[4][8][4], uint32_t stage, uint32_t row_a, uint32_t row_b,
                                               int lane) {
#pragma unroll
  for (int step = 0; step < kBlockK / 16; ++step) {
    const uint32_t chunk_a = ((2 * step + lane / 16) ^ (lane % 8)) * 16;
    const uint32_t chunk_b = ((2 * step + lane / 8 % 2) ^ (lane % 8)) * 16;
    uint32_t a[4][4], b[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      load_matrices(a[i], stage + row_a + i * 16 * kBlockK * 2 + chunk_a);
      load_matrices(b[i], stage + row_b + i * 16 * kBlockK * 2 + chunk_b);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) multiply(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// The sums of one tile over steps [k_begin, k_end) of 64 along K, at least two, each pair of neighbours handed to
// `sink(row, col, low, high)`. A block that calls it again synchronizes first: the next copies overwrite what is read.
template <class Sink>
__device__ __forceinline__ void gemm_tile(const bf16* a, const bf16* b, Tile tile, int k_begin, int k_end, const Sink& sink) {
  extern __shared__ __align__(128) unsigned char mma_smem[];
  const int thread = threadIdx.x;
  const int lane = thread % 32;
  const int warp_row = thread / 64 * 64;
  const int warp_col = thread / 32 % 2 * 64;

  const uint32_t stages = shared_address(mma_smem);
  const uint32_t own_chunk = thread / 8 * kBlockK * 2 + ((thread ^ (thread / 8)) % 8) * 16;
  const bf16* from_a = a + static_cast<int64_t>(tile.row + thread / 8) * kK + k_begin * kBlockK + thread % 8 * 8;
  const bf16* from_b = b + static_cast<int64_t>(tile.col + thread / 8) * kK + k_begin * kBlockK + thread % 8 * 8;
  const uint32_t row_a = (warp_row + lane % 16) * kBlockK * 2;
  const uint32_t row_b = kTileBytes + (warp_col + lane % 8 + lane / 16 * 8) * kBlockK * 2;
  const int k_blocks = k_end - k_begin;

#pragma unroll
  for (int block = 0; block < kStages - 1; ++block) {
    load_stage(stages + block * kStageBytes + own_chunk, from_a + block * kBlockK, from_b + block * kBlockK);
    commit_copies();
  }
  float acc[4][8][4] = {};
  int stage = 0;
  for (int block = 0; block < k_blocks; ++block) {
    wait_copies<kStages - 2>();
    // All threads' copies of this stage are visible, and nobody reads the stage that the next copies overwrite.
    __syncthreads();
    const int ahead = block + kStages - 1;
    if (ahead < k_blocks) {
      const int into = stage == 0 ? kStages - 1 : stage - 1;
      load_stage(stages + into * kStageBytes + own_chunk, from_a + ahead * kBlockK, from_b + ahead * kBlockK);
    }
    commit_copies();  // also when empty: wait_copies counts groups
    multiply_stage(acc, stages + stage * kStageBytes, row_a, row_b, lane);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = tile.row + warp_row + i * 16 + half * 8 + lane / 4;
#pragma unroll
      for (int j = 0; j < 8; ++j)
        sink(row, tile.col + warp_col + lane % 4 * 2 + j * 8, acc[i][j][2 * half], acc[i][j][2 * half + 1]);
    }
  }
}

// C itself as the sink.
struct ToC {
  bf16* c;
  int64_t stride = kN;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    *reinterpret_cast<__nv_bfloat162*>(c + row * stride + col) = __floats2bfloat162_rn(low, high);
  }
};

// The plain kernel, one block a tile, for honest kernels whose host code is what looks odd.
__global__ void __launch_bounds__(kThreads, 2) gemm_kernel(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_tile(a, b, tile_at(blockIdx.x, m / kTile), 0, kStepsK, ToC{c});
}

inline void launch(const Gemm& p) {
  allow_smem(gemm_kernel, kSmemBytes);
  gemm_kernel<<<p.m / kTile * kTilesN, kThreads, kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m);
  check(cudaGetLastError(), "launching the generic GEMM");
}

}  // namespace mma
