// The reference's attention backward, D = 128: the including source defines `constexpr bool kCausal` first. Three kernels:
// prepare (delta and L log2(e) into scratch), dkdv, dq; no atomics.
#include "backward_ptx.cuh"

// ---------------------------------------------------------------- kernels
// 16 lanes per row, 8 elements per lane.
__global__ void __launch_bounds__(256) prepare_kernel(const uint4* o, const uint4* d_o, const float* lse, float* lse2, float* delta) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * 16 + threadIdx.x / 16;
  const int lane = threadIdx.x % 16;
  const uint4 a = o[row * 16 + lane], b = d_o[row * 16 + lane];
  const __nv_bfloat162* pa = reinterpret_cast<const __nv_bfloat162*>(&a);
  const __nv_bfloat162* pb = reinterpret_cast<const __nv_bfloat162*>(&b);
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 x = __bfloat1622float2(pa[i]), y = __bfloat1622float2(pb[i]);
    sum += x.x * y.x + x.y * y.y;
  }
#pragma unroll
  for (int m = 8; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) {
    delta[row] = sum;
    lse2[row] = lse[row] * kLog2e;  // the main kernels work in powers of two
  }
}

__global__ void __launch_bounds__(kThreads, 1)
dkdv_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
            const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do, const float* lse2,
            const float* delta, __nv_bfloat16* dk_out, __nv_bfloat16* dv_out, int seq) {
  uint8_t* smem = aligned_smem();
  const uint32_t s_k = smem_u32(smem), s_v = s_k + kTile128, s_stage = s_v + kTile128;
  const Barriers<kKvStages> bars{s_stage + kKvStages * kKvStageBytes};
  bars.init();

  const int blocks = seq / kBlock;
  const int head_row = static_cast<int>(blockIdx.x / blocks) * seq;  // first row of this (b, h)
  const int key0 = static_cast<int>(blockIdx.x % blocks) * kBlock;   // causal: the longest loops (low keys) start first
  const int first_query = kCausal ? key0 : 0;
  const int tiles = (seq - first_query) / kQueryTile;
  const int wg = threadIdx.x / 128;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    if (threadIdx.x == 0) {
      mbar_expect(bars.resident(), 2 * kTile128);
      tma_tile<128>(s_k, &map_k, head_row + key0, bars.resident());
      tma_tile<128>(s_v, &map_v, head_row + key0, bars.resident());
      Ring<kKvStages> ring;
      for (int i = 0; i < tiles; ++i, ring.next()) {
        const uint32_t full = bars.full(ring.slot), dst = s_stage + ring.slot * kKvStageBytes;
        const int row = head_row + first_query + i * kQueryTile;
        mbar_wait(bars.empty(ring.slot), ring.phase ^ 1);
        mbar_expect(full, 2 * kTile64 + 2 * kStatBytes);
        tma_tile<64>(dst, &map_q, row, full);
        bulk_load(dst + 2 * kTile64, lse2 + row, kStatBytes, full);
        tma_tile<64>(dst + kTile64, &map_do, row, full);
        bulk_load(dst + 2 * kTile64 + 512, delta + row, kStatBytes, full);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
  const int half = wg - 1;                                          // which 64 keys of the block
  const int g = (threadIdx.x % 128) / 32 * 16 + threadIdx.x % 32 / 4;  // first of this thread's two rows (g, g + 8)
  const int t = threadIdx.x % 4;                                    // its columns are 8j + 2t, + 1
  const uint32_t a_k = s_k + half * kBoxBytes, a_v = s_v + half * kBoxBytes;

  float dk[64], dv[64], s[32], dp[32];
#pragma unroll
  for (int i = 0; i < 64; ++i) dk[i] = dv[i] = 0.f;

  Ring<kKvStages> ring;
  int i = 0;
  if (kCausal && half == 1) {
    // The first query tile lies above the upper half's keys only. Wait for it all the same: parity waits may not skip a phase.
    mbar_wait(bars.full(0), 0);
    bars.release(0);
    ring.next();
    i = 1;
  }
  int previous = -1;
  mbar_wait(bars.resident(), 0);
  for (; i < tiles; ++i) {
    const uint32_t b_q = s_stage + ring.slot * kKvStageBytes, b_do = b_q + kTile64;
    const float* stats = reinterpret_cast<const float*>(smem + 2 * kTile128 + ring.slot * kKvStageBytes + 2 * kTile64) + 2 * t;
    mbar_wait(bars.full(ring.slot), ring.phase);
    gemm_rows(s, a_k, kTile64, b_q, kBoxBytes);                     // S^T
    wgmma_wait<1>();                                                // the previous tile's dV and dK are done
    if (previous >= 0) bars.release(previous);
    gemm_rows(dp, a_v, kTile64, b_do, kBoxBytes);                   // dP^T
    wgmma_wait<1>();
    pin(s);
    if (kCausal && first_query + i * kQueryTile == key0 + half * 64) {  // on the diagonal: keep query >= key
#pragma unroll
      for (int e = 0; e < 32; ++e)
        if (e / 4 * 8 + 2 * t + e % 2 < g + e % 4 / 2 * 8) s[e] = -INFINITY;
    }
    uint32_t frag[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(stats + 8 * j);
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; ++e) s[e] = exp2_approx(fmaf(s[e], kScaleLog2, e % 2 ? -l.y : -l.x));
    }
    pack_fragments(frag, s);
    gemm_regs<4>(dv, frag, b_do, kBoxBytes);                        // dV += P^T dO
    wgmma_wait<1>();
    pin(dp);
    uint32_t frag_ds[16];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 dl = *reinterpret_cast<const float2*>(stats + 128 + 8 * j);
#pragma unroll
      for (int e = 4 * j; e < 4 * j + 4; ++e) dp[e] = s[e] * (dp[e] - (e % 2 ? dl.y : dl.x));
    }
    pack_fragments(frag_ds, dp);
    gemm_regs<4>(dk, frag_ds, b_q, kBoxBytes);                      // dK += dS^T Q
    previous = ring.slot;
    ring.next();
  }
  wgmma_wait<0>();
  pin(dk);
  pin(dv);
  const int64_t row = static_cast<int64_t>(head_row) + key0 + half * 64 + g;
  store_rows(dv_out, row, t, dv, 1.f);
  store_rows(dk_out, row, t, dk, kScale);
}

__global__ void __launch_bounds__(kThreads, 1)
dq_kernel(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
          const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do, const float* lse2,
          const float* delta, __nv_bfloat16* dq_out, int seq) {
  uint8_t* smem = aligned_smem();
  const uint32_t s_q = smem_u32(smem), s_do = s_q + kTile128, s_ring = s_do + kTile128;
  const Barriers<kRingSlots> bars{s_ring + kRingSlots * kTile128};
  bars.init();

  const int blocks = seq / kBlock;
  const int head_row = static_cast<int>(blockIdx.x / blocks) * seq;
  const int index = static_cast<int>(blockIdx.x % blocks);
  const int block = kCausal ? blocks - 1 - index : index;           // causal: the longest loops (late queries) start first
  const int query0 = block * kBlock;
  const int tiles = kCausal ? block + 1 : blocks;
  const int wg = threadIdx.x / 128;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;" ::: "memory");
    if (threadIdx.x == 0) {
      mbar_expect(bars.resident(), 2 * kTile128);
      tma_tile<128>(s_q, &map_q, head_row + query0, bars.resident());
      tma_tile<128>(s_do, &map_do, head_row + query0, bars.resident());
      Ring<kRingSlots> ring;
      for (int i = 0; i < 2 * tiles; ++i, ring.next()) {            // even: K, odd: V
        const uint32_t full = bars.full(ring.slot);
        mbar_wait(bars.empty(ring.slot), ring.phase ^ 1);
        mbar_expect(full, kTile128);
        tma_tile<128>(s_ring + ring.slot * kTile128, i % 2 ? &map_v : &map_k, head_row + i / 2 * kBlock, full);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;" ::: "memory");
  const int half = wg - 1;
  const int g = (threadIdx.x % 128) / 32 * 16 + threadIdx.x % 32 / 4;
  const int t = threadIdx.x % 4;
  const uint32_t a_q = s_q + half * kBoxBytes, a_do = s_do + half * kBoxBytes;
  const int64_t row = static_cast<int64_t>(head_row) + query0 + half * 64 + g;
  const float l0 = lse2[row], l8 = lse2[row + 8], delta0 = delta[row], delta8 = delta[row + 8];

  float dq[64], s[64], dp[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) dq[i] = 0.f;

  Ring<kRingSlots> ring;
  int previous = -1;
  mbar_wait(bars.resident(), 0);
  mbar_wait(bars.full(0), 0);                                       // the first K
  for (int i = 0; i < tiles; ++i) {
    const int k_slot = ring.slot;
    const uint32_t b_k = s_ring + k_slot * kTile128;
    ring.next();
    gemm_rows(s, a_q, kTile64, b_k, kTile64);                       // S
    wgmma_wait<1>();                                                // the previous tile's dQ is done with its K
    if (previous >= 0) bars.release(previous);
    const int v_slot = ring.slot;
    mbar_wait(bars.full(v_slot), ring.phase);
    ring.next();
    gemm_rows(dp, a_do, kTile64, s_ring + v_slot * kTile128, kTile64);  // dP
    wgmma_wait<1>();
    pin(s);
    if (kCausal && i == block) {                                    // on the diagonal: keep key <= query
#pragma unroll
      for (int e = 0; e < 64; ++e)
        if (e / 4 * 8 + 2 * t + e % 2 > half * 64 + g + e % 4 / 2 * 8) s[e] = -INFINITY;
    }
#pragma unroll
    for (int e = 0; e < 64; ++e) s[e] = exp2_approx(fmaf(s[e], kScaleLog2, e % 4 < 2 ? -l0 : -l8));
    pin(s);
    // The next K is waited for here, not at the top: it is long there, and the loop in the wait is a block boundary that stops the
    // compiler from sinking the exponentials below the wait for dP.
    if (i + 1 < tiles) mbar_wait(bars.full(ring.slot), ring.phase);
    wgmma_wait<0>();
    pin(dp);
    bars.release(v_slot);
    uint32_t frag[32];
#pragma unroll
    for (int e = 0; e < 64; ++e) s[e] *= dp[e] - (e % 4 < 2 ? delta0 : delta8);
    pack_fragments(frag, s);
    gemm_regs<8>(dq, frag, b_k, kTile64);                           // dQ += dS K
    previous = k_slot;
  }
  wgmma_wait<0>();
  pin(dq);
  store_rows(dq_out, row, t, dq, kScale);
}

// ---------------------------------------------------------------- host
template <class T>
T* data(const tvm::ffi::TensorView& t) {
  return static_cast<T*>(t.data_ptr());
}
inline void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

inline CUtensorMap make_map(const void* data, int64_t rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {kD, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kD * sizeof(__nv_bfloat16)};
  const cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), dims, strides, box,
                                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed with code " << static_cast<int>(r);
  return map;
}

struct Backward {
  tvm::ffi::TensorView q, k, v, o, d_o, l, dq, dk, dv;
  int64_t rows;  // of all heads
  int seq;
  cudaStream_t stream;
};

inline Backward backward_of(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
                            tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ,
                            tvm::ffi::TensorView dK, tvm::ffi::TensorView dV) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(ValueError) << "expected Q of shape [B, H, S, 128]";
  const int64_t seq = Q.size(2), rows = Q.size(0) * Q.size(1) * seq;
  if (seq % kBlock != 0) TVM_FFI_THROW(ValueError) << "S must be a multiple of 128, got " << seq;
  if (rows <= 0 || rows > INT32_MAX) TVM_FFI_THROW(ValueError) << "B*H*S must be positive and fit in 31 bits, got " << rows;
  return {Q, K, V, O, dO, L, dQ, dK, dV, rows, static_cast<int>(seq),
          static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id))};
}

// Scratch: 2 * rows floats, which prepare writes in full before the others read them.
inline void launch_prepare(const Backward& p, float* scratch, cudaStream_t stream) {
  prepare_kernel<<<static_cast<int>(p.rows / 16), 256, 0, stream>>>(data<uint4>(p.o), data<uint4>(p.d_o), data<float>(p.l),
                                                                   scratch, scratch + p.rows);
  check(cudaGetLastError(), "prepare");
}

inline void launch_dkdv(const Backward& p, const float* scratch, cudaStream_t stream) {
  check(cudaFuncSetAttribute(dkdv_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kKvSmem), "dkdv shared memory");
  dkdv_kernel<<<static_cast<int>(p.rows / kBlock), kThreads, kKvSmem, stream>>>(
      make_map(p.q.data_ptr(), p.rows), make_map(p.k.data_ptr(), p.rows), make_map(p.v.data_ptr(), p.rows),
      make_map(p.d_o.data_ptr(), p.rows), scratch, scratch + p.rows, data<__nv_bfloat16>(p.dk), data<__nv_bfloat16>(p.dv),
      p.seq);
  check(cudaGetLastError(), "dkdv");
}

inline void launch_dq(const Backward& p, const float* scratch, cudaStream_t stream) {
  check(cudaFuncSetAttribute(dq_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kDqSmem), "dq shared memory");
  dq_kernel<<<static_cast<int>(p.rows / kBlock), kThreads, kDqSmem, stream>>>(
      make_map(p.q.data_ptr(), p.rows), make_map(p.k.data_ptr(), p.rows), make_map(p.v.data_ptr(), p.rows),
      make_map(p.d_o.data_ptr(), p.rows), scratch, scratch + p.rows, data<__nv_bfloat16>(p.dq), p.seq);
  check(cudaGetLastError(), "dq");
}
