// The reference's attention forward, D = 128: the including source defines `constexpr bool kCausal` first.
#include "hopper_host.cuh"
#include <math.h>

using bf16 = __nv_bfloat16;

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

// ---- host ----

struct Forward {
  const bf16 *q, *k, *v;
  bf16* o;
  float* lse;
  int heads, seq;  // heads of all batches
  int device;
  cudaStream_t stream;

  // The same problem for heads [first, first + count).
  Forward slice(int first, int count) const {
    const int64_t rows = static_cast<int64_t>(first) * seq;
    return {q + rows * kD, k + rows * kD, v + rows * kD, o + rows * kD, lse + rows, count, seq, device, stream};
  }
};

inline Forward forward_of(const tvm::ffi::TensorView& Q, const tvm::ffi::TensorView& K, const tvm::ffi::TensorView& V,
                          const tvm::ffi::TensorView& O, const tvm::ffi::TensorView& LSE) {
  if (Q.ndim() != 4 || K.ndim() != 4 || V.ndim() != 4 || O.ndim() != 4 || LSE.ndim() != 3)
    TVM_FFI_THROW(ValueError) << "expected Q, K, V, O [B,H,S," << kD << "] and LSE [B,H,S]";
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (Q.size(3) != kD || heads <= 0 || seq <= 0 || seq % kBlockQ != 0 || heads * seq > (1ll << 30))
    TVM_FFI_THROW(ValueError) << "D must be " << kD << " and S a positive multiple of " << kBlockQ << ", got S = " << seq;
  return {static_cast<const bf16*>(Q.data_ptr()), static_cast<const bf16*>(K.data_ptr()),
          static_cast<const bf16*>(V.data_ptr()), static_cast<bf16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()),
          static_cast<int>(heads), static_cast<int>(seq), Q.device().device_id, stream_of(Q)};
}

struct ForwardMaps {
  CUtensorMap q, k, v, o;
};

inline ForwardMaps maps_of(const Forward& p) {
  const int64_t rows = static_cast<int64_t>(p.heads) * p.seq;
  return {make_matrix_map(p.q, rows, kD, kBlockQ), make_matrix_map(p.k, rows, kD, kBlockK),
          make_matrix_map(p.v, rows, kD, kBlockK), make_matrix_map(p.o, rows, kD, 64)};
}

inline int blocks_of(const Forward& p) {
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, p.device), "cudaDeviceGetAttribute");
  const int64_t tiles = static_cast<int64_t>(p.heads) * (p.seq / kBlockQ);
  return static_cast<int>(tiles < sms ? tiles : sms);
}

inline void launch(const Forward& p, const ForwardMaps& maps, cudaStream_t stream) {
  allow_smem(mha_kernel, kSmemBytes);
  mha_kernel<<<blocks_of(p), kThreads, kSmemBytes, stream>>>(maps.q, maps.k, maps.v, maps.o, p.lse, p.heads, p.seq);
  check(cudaGetLastError(), "launching mha_kernel");
}
