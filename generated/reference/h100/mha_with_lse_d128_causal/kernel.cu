// Attention forward under a lower-triangular mask (query i sees keys j <= i): O = softmax(Q K^T / sqrt(D)) V and
// LSE = natural logarithm of the sum of exp of the scaled scores. Q, K, V, O are [B,H,S,D] BF16, LSE is [B,H,S] FP32,
// D = 128 fixed, S any multiple of 128.
//
// Schedule: one persistent block an SM, three warpgroups. A work tile is 128 query rows of one head; key tiles hold 128
// keys and are visited from the last to the first, so that only the first visited one can need a mask.
//   warpgroup 0: producer; one thread loads Q (32 KB), and K and V (32 KB each, two stages each) by TMA, also ahead of
//                the consumers into the next work tile
//   warpgroups 1, 2: consumers of 64 query rows each. Scores of the next key tile (wgmma m64n128k16, both operands in
//                shared memory) are issued together with the product of the current probabilities (A in registers) and
//                V (MN-major B), so that the softmax of the next tile runs under that product. The two warpgroups take
//                turns in issuing (named barriers), so that one's softmax also runs under the other's products.
// The old row maximum rescales O only after the product in flight has finished; O is divided by the row sum at the end.
//
// Shared memory: Q 32 KB + K 2 x 32 KB + V 2 x 32 KB + staging of O 32 KB = 192 KB, + barriers and slack. Each
// tile of 128 columns is two boxes of 64 columns (128 bytes, TMA's 128-byte swizzle: chunk c of row r at c ^ (r % 8)).
//
// Sources (PTX ISA): "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (register fragments, matrix
// descriptor, strides of MN-major layouts), "cp.async.bulk.tensor", "mbarrier", "Tensor: Swizzling Modes".
//
// All inline PTX is in functions of knowledge_packs/h100, whose text is the pack's, macros expanded.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr bool kCausal = true;
constexpr bool kTakeTurns = true;
constexpr int kD = 128;
constexpr int kBlockQ = 128;
constexpr int kBlockK = 128;
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr int kConsumerWarps = 8;
constexpr float kScale = 0.08838834764831845f;             // 1 / sqrt(128)
constexpr float kScaleLog2 = kScale * 1.4426950408889634f;  // so that exp2 serves

constexpr int kBytesBox = 128 * 64 * 2;     // 128 rows of 64 columns
constexpr int kBytesTile = 2 * kBytesBox;   // 128 rows of 128 columns
constexpr int kBytesOutBox = 64 * 64 * 2;   // a consumer's 64 rows of 64 columns of O
constexpr int kOffsetQ = 0;
constexpr int kOffsetK = kOffsetQ + kBytesTile;
constexpr int kOffsetV = kOffsetK + kStages * kBytesTile;
constexpr int kOffsetOut = kOffsetV + kStages * kBytesTile;
constexpr int kOffsetBarriers = kOffsetOut + kBytesTile;
constexpr int kSmemBytes = kOffsetBarriers + (2 + 4 * kStages) * 8 + 1024;  // 1024: room to align the base
static_assert(kSmemBytes <= 232448, "more shared memory than a block may have");

// Hardware barriers (0 is __syncthreads): one for the threads of each consumer, one for each consumer's turn.
constexpr int kBarrierOwn = 1;
constexpr int kBarrierTurn = 3;

// Address of a shared-memory object in the block's shared window.
__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Next multiple of `n`, a power of two.
__host__ __device__ __forceinline__ constexpr uint32_t align_up(uint32_t x, uint32_t n) { return (x + n - 1) & ~(n - 1); }

// The shuffle lets the compiler see a uniform value.
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(0xffffffffu, x, 0); }

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}

// Makes the barriers known to the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
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

// MN-major operand (V): a row is a key, and the leading offset is the distance between the two boxes of 64 columns.
template <int kSwizzle = 128>
__host__ __device__ __forceinline__ constexpr uint64_t desc_mn_major(uint32_t addr, uint32_t next_box) {
  return smem_desc<kSwizzle>(addr, next_box, 8 * kSwizzle);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operand lists for the accumulators.
#define WG_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

// d (64 x 128) = A (64 x 16) B (128 x 16)^T + (accumulate ? d : 0), both in shared memory; K-major by default
template <int kTransA = 0, int kTransB = 0>
__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, %67, %68;\n}"
      : WG_4(d, 0), WG_4(d, 4), WG_4(d, 8), WG_4(d, 12), WG_4(d, 16), WG_4(d, 20), WG_4(d, 24), WG_4(d, 28),
        WG_4(d, 32), WG_4(d, 36), WG_4(d, 40), WG_4(d, 44), WG_4(d, 48), WG_4(d, 52), WG_4(d, 56), WG_4(d, 60)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransA), "n"(kTransB)
      : "memory");
}

// d (64 x 128) = A (64 x 16, registers) B + (accumulate ? d : 0), B in shared memory; kTransB = 1: MN-major
template <int kTransB = 0>
__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %69, 0;\n"
      " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}"
      : WG_4(d, 0), WG_4(d, 4), WG_4(d, 8), WG_4(d, 12), WG_4(d, 16), WG_4(d, 20), WG_4(d, 24), WG_4(d, 28),
        WG_4(d, 32), WG_4(d, 36), WG_4(d, 40), WG_4(d, 44), WG_4(d, 48), WG_4(d, 52), WG_4(d, 56), WG_4(d, 60)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kTransB)
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

// The accumulator fragment of 16 columns is the A fragment of one wgmma, once packed in pairs.
template <int kN>
__device__ __forceinline__ void pack_fragments(uint32_t (&a)[kN / 2], const float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) a[i] = pack_bf16(d[2 * i], d[2 * i + 1]);
}

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Over the four lanes of a row.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
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

// Loads rows y..y+127 and all 128 columns as two boxes; `bar` completes when both have arrived.
__device__ __forceinline__ void load_tile(uint32_t dst, const CUtensorMap* map, uint32_t bar, int y) {
  mbar_expect_tx(bar, kBytesTile);
  tma_load(dst, map, bar, 0, y);
  tma_load(dst + kBytesBox, map, bar, 64, y);
}

// s = Q K^T, issued and committed. 16 columns are 32 bytes (2 in the descriptor's unit) inside a box of 64 columns.
__device__ __forceinline__ void issue_scores(float (&s)[64], uint64_t q, uint64_t k) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const int offset = (i >> 2) * (kBytesBox >> 4) + (i & 3) * 2;
    wgmma_ss(s, q + offset, k + offset, i != 0);
  }
  wgmma_commit();
}

// o += P V, issued and committed. 16 keys are 16 rows of 128 bytes.
__device__ __forceinline__ void issue_output(float (&o)[64], const uint32_t (&p)[32], uint64_t v) {
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kBlockK / 16; ++i) wgmma_rs<1>(o, p + 4 * i, v + i * (16 * 128 >> 4), 1);
  wgmma_commit();
}

// Rows of a thread: r = 0 is the row lane / 4 of the warp's 16, r = 1 the one 8 below. s[4 j + 2 r + e] is column
// 8 j + 2 (lane % 4) + e. Turns scores into probabilities under the new row maximum, updates maximum and sum (the sum
// over this thread's columns only) and gives the factor for what was summed under the old maximum.
__device__ __forceinline__ void online_softmax(float (&s)[64], float (&row_max)[2], float (&row_sum)[2], float (&factor)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float high0 = row_max[r], high1 = s[2 * r];  // two chains shorten the dependent sequence
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      high0 = fmaxf(high0, s[4 * j + 2 * r]);
      high1 = fmaxf(high1, s[4 * j + 2 * r + 1]);
    }
    const float high = quad_max(fmaxf(high0, high1));
    // Every row sees at least one key in the first tile, so `high` is finite; the old maximum may be -infinity.
    factor[r] = exp2_fast((row_max[r] - high) * kScaleLog2);
    row_max[r] = high;
    const float shift = high * kScaleLog2;
    float sum0 = 0.f, sum1 = 0.f;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float& p0 = s[4 * j + 2 * r];
      float& p1 = s[4 * j + 2 * r + 1];
      p0 = exp2_fast(fmaf(p0, kScaleLog2, -shift));
      p1 = exp2_fast(fmaf(p1, kScaleLog2, -shift));
      sum0 += p0;
      sum1 += p1;
    }
    row_sum[r] = row_sum[r] * factor[r] + (sum0 + sum1);
  }
}

// A causal head's tiles differ in cost by up to S / 128. Heavy tiles come first in each head, heads follow each other
// (the K and V of few heads are in L2 at a time), and every second wave runs backwards over the blocks, which evens out
// the sums. Returns -1 where this block has no tile in the wave.
__device__ __forceinline__ int tile_in_wave(int wave, int tiles) {
  const int blocks = gridDim.x;
  const int t = wave * blocks + ((wave & 1) ? blocks - 1 - static_cast<int>(blockIdx.x) : static_cast<int>(blockIdx.x));
  return t < tiles ? t : -1;
}

__global__ void __launch_bounds__(kThreads, 1)
    mha_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
               const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* __restrict__ lse,
               int heads, int seq) {
  extern __shared__ uint8_t smem_raw[];
  const uint32_t smem = align_up(smem_u32(smem_raw), 1024);
  const uint32_t q_full = smem + kOffsetBarriers;
  const uint32_t q_empty = q_full + 8;
  const uint32_t k_full = q_empty + 8;
  const uint32_t k_empty = k_full + 8 * kStages;
  const uint32_t v_full = k_empty + 8 * kStages;
  const uint32_t v_empty = v_full + 8 * kStages;
  const int group = warp_uniform(threadIdx.x / 128);
  const int per_head = seq / kBlockQ;
  const int tiles = heads * per_head;
  const int waves = (tiles + gridDim.x - 1) / gridDim.x;

  if (threadIdx.x == 0) {
    mbar_init(q_full, 1);  // the producer's expect_tx; the bytes do the rest
    mbar_init(q_empty, kConsumerWarps);
    for (int s = 0; s < kStages; ++s) {
      mbar_init(k_full + 8 * s, 1);
      mbar_init(k_empty + 8 * s, kConsumerWarps);
      mbar_init(v_full + 8 * s, 1);
      mbar_init(v_empty + 8 * s, kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  __syncthreads();

  if (group == 0) {
    setmaxnreg_dec<24>();
    if (threadIdx.x == 0) {
      int done = 0;   // work tiles begun by this block
      int count = 0;  // key tiles loaded by this block: stage and phase follow from it
      for (int wave = 0; wave < waves; ++wave) {
        const int t = tile_in_wave(wave, tiles);
        if (t < 0) continue;
        const int head = t / per_head;
        const int block = per_head - 1 - (t - head * per_head);
        const int row = head * seq;
        mbar_wait(q_empty, (done & 1) ^ 1);  // parity 1 of a fresh barrier counts as completed
        ++done;
        load_tile(smem + kOffsetQ, &map_q, q_full, row + block * kBlockQ);
        for (int j = kCausal ? block : per_head - 1; j >= 0; --j, ++count) {
          const int stage = count % kStages;
          const uint32_t parity = ((count / kStages) & 1) ^ 1;
          mbar_wait(k_empty + 8 * stage, parity);
          load_tile(smem + kOffsetK + stage * kBytesTile, &map_k, k_full + 8 * stage, row + j * kBlockK);
          mbar_wait(v_empty + 8 * stage, parity);
          load_tile(smem + kOffsetV + stage * kBytesTile, &map_v, v_full + 8 * stage, row + j * kBlockK);
        }
      }
    }
  } else {
    setmaxnreg_inc<240>();
    const int consumer = group - 1;
    const int thread = threadIdx.x & 127;
    const int warp = thread >> 5;
    const int lane = thread & 31;
    const uint32_t out = smem + kOffsetOut + consumer * (2 * kBytesOutBox);
    const uint64_t q_desc = desc_k_major(smem + kOffsetQ + consumer * (64 * 128));  // rows 64 * consumer of both boxes
    const int my_row = warp * 16 + (lane >> 2);
    float s[64], o[64];
    uint32_t p[32];
    int done = 0;
    int count = 0;
    if (kTakeTurns && consumer == 1) named_arrive(kBarrierTurn + 0, 256);  // the first turn is consumer 0's

    for (int wave = 0; wave < waves; ++wave) {
      const int t = tile_in_wave(wave, tiles);
      if (t < 0) continue;
      const int head = t / per_head;
      const int block = per_head - 1 - (t - head * per_head);
      const int key_tiles = kCausal ? block + 1 : per_head;
      float row_max[2] = {-INFINITY, -INFINITY}, row_sum[2] = {0.f, 0.f}, factor[2];
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] = 0.f;

      // First key tile: nothing to overlap with yet.
      int stage = count % kStages;
      mbar_wait(q_full, done & 1);
      ++done;
      mbar_wait(k_full + 8 * stage, (count / kStages) & 1);
      issue_scores(s, q_desc, desc_k_major(smem + kOffsetK + stage * kBytesTile));
      wgmma_wait<0>();
      pin(s);
      if (lane == 0) mbar_arrive(k_empty + 8 * stage);
      if (kCausal) {  // the first visited tile is the one on the diagonal: its local indices compare directly
#pragma unroll
        for (int i = 0; i < 64; ++i) {
          const int column = 8 * (i >> 2) + 2 * (lane & 3) + (i & 1);
          if (column > consumer * 64 + my_row + 8 * ((i >> 1) & 1)) s[i] = -INFINITY;
        }
      }
      online_softmax(s, row_max, row_sum, factor);
      pack_fragments(p, s);
      mbar_wait(v_full + 8 * stage, (count / kStages) & 1);

      // Key tile n's scores together with key tile n - 1's output. `count` is the number of tile n - 1, whose V has arrived.
      for (int n = 1; n < key_tiles; ++n, ++count) {
        const int k_stage = (count + 1) % kStages;
        const int v_stage = count % kStages;
        mbar_wait(k_full + 8 * k_stage, ((count + 1) / kStages) & 1);
        if (kTakeTurns) named_sync(kBarrierTurn + consumer, 256);
        issue_scores(s, q_desc, desc_k_major(smem + kOffsetK + k_stage * kBytesTile));
        issue_output(o, p, desc_mn_major(smem + kOffsetV + v_stage * kBytesTile, kBytesBox));
        if (kTakeTurns) named_arrive(kBarrierTurn + (consumer ^ 1), 256);
        wgmma_wait<1>();  // the scores are there, the output product runs on
        pin(s);
        if (lane == 0) mbar_arrive(k_empty + 8 * k_stage);
        online_softmax(s, row_max, row_sum, factor);
        pin(s);
        // Waiting for the next V here costs nothing, and its branch keeps the assembler from moving the wait for the
        // product above the exponentials, which would undo the overlap.
        mbar_wait(v_full + 8 * k_stage, ((count + 1) / kStages) & 1);
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) mbar_arrive(v_empty + 8 * v_stage);
#pragma unroll
        for (int i = 0; i < 64; ++i) o[i] *= factor[(i >> 1) & 1];
        pack_fragments(p, s);
      }
      if (lane == 0) mbar_arrive(q_empty);  // the last scores are done: the next work tile's Q may come

      stage = count % kStages;
      issue_output(o, p, desc_mn_major(smem + kOffsetV + stage * kBytesTile, kBytesBox));
      ++count;
      const int first_row = block * kBlockQ + consumer * 64;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row_sum[r] = quad_sum(row_sum[r]);
        if ((lane & 3) == 0)
          lse[static_cast<int64_t>(head) * seq + first_row + my_row + 8 * r] = row_max[r] * kScale + logf(row_sum[r]);
        row_sum[r] = 1.f / row_sum[r];
      }
      wgmma_wait<0>();
      pin(o);
      if (lane == 0) mbar_arrive(v_empty + 8 * stage);

      if (thread == 0) tma_wait_read<0>();  // the last store has read the staging
      named_sync(kBarrierOwn + consumer, 128);
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] *= row_sum[(i >> 1) & 1];
      store_box(out, o, thread);  // two boxes of 64 columns
      store_box(out + kBytesOutBox, o + 32, thread);
      fence_async_smem();  // TMA reads the staging through the async proxy
      named_sync(kBarrierOwn + consumer, 128);
      if (thread == 0) {
        tma_store(&map_o, out, 0, head * seq + first_row);
        tma_store(&map_o, out + kBytesOutBox, 64, head * seq + first_row);
        tma_commit();
      }
    }
    if (kTakeTurns && consumer == 0) named_sync(kBarrierTurn + 0, 256);  // pairs with consumer 1's last arrival
    if (thread == 0) tma_wait<0>();
  }
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

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || K.ndim() != 4 || V.ndim() != 4 || O.ndim() != 4 || LSE.ndim() != 3)
    TVM_FFI_THROW(RuntimeError) << "expected Q, K, V, O [B,H,S," << kD << "] and LSE [B,H,S]";
  for (int i = 0; i < 4; ++i)
    if (K.size(i) != Q.size(i) || V.size(i) != Q.size(i) || O.size(i) != Q.size(i) || (i < 3 && LSE.size(i) != Q.size(i)))
      TVM_FFI_THROW(RuntimeError) << "the tensors differ in axis " << i;
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (Q.size(3) != kD || heads <= 0 || seq <= 0 || seq % kBlockQ != 0 || heads * seq > (1ll << 30))
    TVM_FFI_THROW(RuntimeError) << "D must be " << kD << " and S a positive multiple of " << kBlockQ << ", got S = " << seq;
  const CUtensorMap map_q = make_matrix_map(Q.data_ptr(), heads * seq, kD, kBlockQ);
  const CUtensorMap map_k = make_matrix_map(K.data_ptr(), heads * seq, kD, kBlockK);
  const CUtensorMap map_v = make_matrix_map(V.data_ptr(), heads * seq, kD, kBlockK);
  const CUtensorMap map_o = make_matrix_map(O.data_ptr(), heads * seq, kD, 64);
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "cudaDeviceGetAttribute");
  allow_smem(mha_kernel, kSmemBytes);
  const int64_t tiles = heads * (seq / kBlockQ);
  const int blocks = static_cast<int>(tiles < sms ? tiles : sms);
  const cudaStream_t stream = stream_of(Q);
  mha_kernel<<<blocks, kThreads, kSmemBytes, stream>>>(map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                                                      static_cast<int>(heads), static_cast<int>(seq));
  check(cudaGetLastError(), "launching mha_kernel");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
