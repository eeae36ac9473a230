// gqa_paged_prefill_causal_h24_kv8_d128_ps1: cluster of 2 = split keys, warpgroup = query head, cp.async page gather.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int kQHeads = 24;
constexpr int kKvHeads = 8;
constexpr int kGroup = 3;
constexpr int kD = 128;
constexpr int kBM = 64;  // queries of a tile
constexpr int kBN = 64;  // keys of a tile
constexpr int kStages = 3;
constexpr int kConsumers = kGroup * 128;
constexpr int kThreads = 128 + kConsumers;
constexpr uint32_t kPanel = 64 * 128;         // 64 rows x 64 columns, 128-byte swizzle
constexpr uint32_t kTileBytes = 2 * kPanel;   // 64 rows x 128 columns

struct __align__(1024) Smem {
  uint8_t q[kGroup][kTileBytes];
  uint8_t k[kStages][kTileBytes];
  uint8_t v[kStages][kTileBytes];
  float4 xo[8][kConsumers];  // written by the other CTA: half of its accumulators
  float4 xml[kConsumers];    // and its m and l
  uint64_t q_full;
  uint64_t k_full[kStages];
  uint64_t k_empty[kStages];
  uint64_t v_full[kStages];
  uint64_t v_empty[kStages];
};

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbar_wait(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}
__device__ __forceinline__ void mbar_arrive(uint64_t* bar) {
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar);
}

__device__ __forceinline__ void cp_async_zfill(uint32_t dst, const void* src, bool live) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(dst), "l"(src), "r"(live ? 16 : 0) : "memory");
}
// Arrives when all earlier cp.async of this thread are done; the barrier counts it as one of its 128.
__device__ __forceinline__ void cp_async_arrive(uint64_t* bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(smem_addr(bar)) : "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(lbo >> 4) << 16) |
         (static_cast<uint64_t>(sbo >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
}
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void pin(float (&r)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

__device__ __forceinline__ void wgmma_n64_ss(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, %32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_n128_rs(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                              uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}

__device__ __forceinline__ void issue_qk(float (&s)[32], uint32_t q, uint32_t k) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t off = (i / 4) * kPanel + (i % 4) * 32;
    wgmma_n64_ss(s, make_desc(q + off, 16, 1024), make_desc(k + off, 16, 1024), i > 0);
  }
}
__device__ __forceinline__ void issue_pv(float (&o)[64], const uint32_t (&p)[16], uint32_t v) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
    wgmma_n128_rs(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], make_desc(v + i * 2048, kPanel, 1024));
}

// `limit` is the last key that row 0 of this thread sees, counted from the first key of the tile.
__device__ __forceinline__ void softmax_tile(float (&s)[32], float (&m)[2], float (&l)[2], float (&alpha)[2],
                                             float scale_log2, int limit, bool masked, int quad) {
  if (masked) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int col = (i / 4) * 8 + quad * 2 + (i & 1);
      if (col > limit + ((i & 2) ? 8 : 0)) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float mx = m[r];
#pragma unroll
    for (int n = 0; n < 8; ++n) mx = fmaxf(mx, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
    const float base = mx == -INFINITY ? 0.f : mx * scale_log2;
    alpha[r] = ex2(fmaf(m[r], scale_log2, -base));
    m[r] = mx;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float e0 = ex2(fmaf(s[4 * n + 2 * r], scale_log2, -base));
      const float e1 = ex2(fmaf(s[4 * n + 2 * r + 1], scale_log2, -base));
      s[4 * n + 2 * r] = e0;
      s[4 * n + 2 * r + 1] = e1;
      sum += e0 + e1;
    }
    l[r] = l[r] * alpha[r] + sum;
  }
}

// Sends accumulators [32 half, 32 half + 32) of this thread to its twin in the other CTA.
template <int kHalf>
__device__ __forceinline__ void send_half(const float (&o)[64], float4* remote, int ctid) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    remote[i * kConsumers + ctid] = make_float4(o[kHalf * 32 + 4 * i], o[kHalf * 32 + 4 * i + 1],
                                                o[kHalf * 32 + 4 * i + 2], o[kHalf * 32 + 4 * i + 3]);
}

template <int kHalf>
__device__ __forceinline__ void finish_half(const float (&o)[64], const float4* mine, int ctid, const float (&w_own)[2],
                                            const float (&w_other)[2], __nv_bfloat16* out0, __nv_bfloat16* out1,
                                            bool ok0, bool ok1) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 x = mine[i * kConsumers + ctid];
    const float a0 = o[kHalf * 32 + 4 * i] * w_own[0] + x.x * w_other[0];
    const float a1 = o[kHalf * 32 + 4 * i + 1] * w_own[0] + x.y * w_other[0];
    const float a2 = o[kHalf * 32 + 4 * i + 2] * w_own[1] + x.z * w_other[1];
    const float a3 = o[kHalf * 32 + 4 * i + 3] * w_own[1] + x.w * w_other[1];
    if (ok0) *reinterpret_cast<uint32_t*>(out0 + kHalf * 64 + i * 8) = pack(a0, a1);
    if (ok1) *reinterpret_cast<uint32_t*>(out1 + kHalf * 64 + i * 8) = pack(a2, a3);
  }
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    paged_prefill(const __grid_constant__ CUtensorMap map_q, const __nv_bfloat16* __restrict__ k_cache,
                  const __nv_bfloat16* __restrict__ v_cache, const int* __restrict__ qo_indptr,
                  const int* __restrict__ kv_indptr, const int* __restrict__ kv_indices, int n_seqs,
                  float scale_log2, __nv_bfloat16* __restrict__ output, float* __restrict__ lse) {
  extern __shared__ uint8_t smem_raw[];
  Smem& sm = *reinterpret_cast<Smem*>(smem_raw + ((1024 - (smem_addr(smem_raw) & 1023)) & 1023));
  cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  // x enumerates (tile, kv head), long tiles first.
  const int pair = blockIdx.x / 2;
  const int kv_head = pair % kKvHeads;
  int tile = static_cast<int>(gridDim.x) / 2 / kKvHeads - 1 - pair / kKvHeads;

  int seq = 0, q_begin = 0, n_q = 0;
  for (; seq < n_seqs; ++seq) {
    q_begin = __ldg(qo_indptr + seq);
    n_q = __ldg(qo_indptr + seq + 1) - q_begin;
    const int tiles = (n_q + kBM - 1) / kBM;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (seq == n_seqs) return;  // both CTAs of the cluster: the grid is an upper bound
  const int kv_begin = __ldg(kv_indptr + seq);
  const int n_kv = __ldg(kv_indptr + seq + 1) - kv_begin;
  const int q0 = tile * kBM;
  const int offset = n_kv - n_q;
  const int seen = min(offset + q0 + kBM, n_kv);
  const int all_tiles = (seen + kBN - 1) / kBN;
  const int middle = (all_tiles + 1) / 2;
  const int t_begin = rank == 0 ? 0 : middle;
  const int t_end = rank == 0 ? middle : all_tiles;

  const int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 128);
      ptx::mbarrier_init(&sm.v_full[i], 128);
      ptx::mbarrier_init(&sm.k_empty[i], kConsumers / 32);
      ptx::mbarrier_init(&sm.v_empty[i], kConsumers / 32);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  cluster.sync();

  if (wg == 0) {
    // ------------------------------------------------------------ producer warpgroup
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    const int tid = threadIdx.x;
    if (tid == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.q_full,
                                     kGroup * kTileBytes);
      for (int h = 0; h < kGroup; ++h)
        for (int c = 0; c < 2; ++c) {
          const int32_t coords[3] = {c * 64, kv_head * kGroup + h, q_begin + q0};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q[h] + c * kPanel, &map_q, coords,
                                    &sm.q_full);
        }
    }
    __syncwarp();
    const int piece = tid % 16;  // 16 bytes of a row
    const int row0 = tid / 16;   // rows row0 + 8 i
    const uint32_t dst0 = (piece / 8) * kPanel + row0 * 128 + (((piece % 8) ^ row0) << 4);
    const int64_t column = static_cast<int64_t>(kv_head) * kD + piece * 8;
    const int* indices = kv_indices + kv_begin;

    int page[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int key = t_begin * kBN + row0 + 8 * i;
      page[i] = (t_begin < t_end && key < n_kv) ? __ldg(indices + key) : -1;
    }
    for (int t = t_begin; t < t_end; ++t) {
      const int n = t - t_begin;
      const int st = n % kStages;
      const uint32_t parity = ((n / kStages) & 1) ^ 1;
      mbar_wait(&sm.k_empty[st], parity);
      const uint32_t k_dst = smem_addr(sm.k[st]) + dst0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int64_t src = static_cast<int64_t>(max(page[i], 0)) * (kKvHeads * kD) + column;
        cp_async_zfill(k_dst + i * 1024, k_cache + src, page[i] >= 0);
      }
      cp_async_arrive(&sm.k_full[st]);
      mbar_wait(&sm.v_empty[st], parity);
      const uint32_t v_dst = smem_addr(sm.v[st]) + dst0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int64_t src = static_cast<int64_t>(max(page[i], 0)) * (kKvHeads * kD) + column;
        cp_async_zfill(v_dst + i * 1024, v_cache + src, page[i] >= 0);
      }
      cp_async_arrive(&sm.v_full[st]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int key = (t + 1) * kBN + row0 + 8 * i;
        page[i] = (t + 1 < t_end && key < n_kv) ? __ldg(indices + key) : -1;
      }
    }
    cluster.sync();
    return;
  }

  // ---------------------------------------------------------------- consumer warpgroups, one head each
  asm volatile("setmaxnreg.inc.sync.aligned.u32 152;");
  const int h = wg - 1;
  const int ctid = threadIdx.x - 128;
  const int lane = threadIdx.x % 32;
  const int warp = (threadIdx.x % 128) / 32;
  const int quad = lane % 4;
  const int row = warp * 16 + lane / 4;       // and row + 8
  const int last_key = offset + q0 + row;     // last key of `row`
  const int first_masked = offset + q0 + 1;   // tiles that end at or before this key need no mask
  const uint32_t q_addr = smem_addr(sm.q[h]);

  auto release = [&](uint64_t* bar) {
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  };

  float o[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) o[i] = 0.f;
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, alpha[2];

  mbar_wait(&sm.q_full, 0);
  if (t_begin < t_end) {
    float s[32];
    uint32_t p[16];
    mbar_wait(&sm.k_full[0], 0);
    ptx::fence_proxy_async(ptx::space_shared);
    wgmma_fence();
    issue_qk(s, q_addr, smem_addr(sm.k[0]));
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    release(&sm.k_empty[0]);
    softmax_tile(s, m, l, alpha, scale_log2, last_key - t_begin * kBN, (t_begin + 1) * kBN > first_masked, quad);
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

    int n = 0;
    for (int t = t_begin + 1; t < t_end; ++t) {
      const int vs = n % kStages;
      const uint32_t vp = (n / kStages) & 1;
      ++n;
      const int ks = n % kStages;
      const uint32_t kp = (n / kStages) & 1;
      mbar_wait(&sm.k_full[ks], kp);
      ptx::fence_proxy_async(ptx::space_shared);
      pin(s);
      wgmma_fence();
      issue_qk(s, q_addr, smem_addr(sm.k[ks]));
      wgmma_commit();
      mbar_wait(&sm.v_full[vs], vp);
      ptx::fence_proxy_async(ptx::space_shared);
      issue_pv(o, p, smem_addr(sm.v[vs]));
      wgmma_commit();
      wgmma_wait<1>();
      pin(s);
      release(&sm.k_empty[ks]);
      softmax_tile(s, m, l, alpha, scale_log2, last_key - t * kBN, (t + 1) * kBN > first_masked, quad);
      wgmma_wait<0>();
      pin(o);
      release(&sm.v_empty[vs]);
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] *= alpha[(i >> 1) & 1];
#pragma unroll
      for (int i = 0; i < 16; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
    }
    mbar_wait(&sm.v_full[n % kStages], (n / kStages) & 1);
    ptx::fence_proxy_async(ptx::space_shared);
    pin(o);
    wgmma_fence();
    issue_pv(o, p, smem_addr(sm.v[n % kStages]));
    wgmma_commit();
    wgmma_wait<0>();
    pin(o);
  }

  // ---------------------------------------------------------------- exchange with the other CTA
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
  }
  float4* remote_o = cluster.map_shared_rank(&sm.xo[0][0], rank ^ 1);
  float4* remote_ml = cluster.map_shared_rank(&sm.xml[0], rank ^ 1);
  if (rank == 0)
    send_half<1>(o, remote_o, ctid);
  else
    send_half<0>(o, remote_o, ctid);
  remote_ml[ctid] = make_float4(m[0], m[1], l[0], l[1]);
  cluster.sync();

  const float4 x = sm.xml[ctid];
  const float m_other[2] = {x.x, x.y}, l_other[2] = {x.z, x.w};
  float w_own[2], w_other[2], lse2[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float top = fmaxf(m[r], m_other[r]);  // finite: every row sees key 0
    w_own[r] = ex2((m[r] - top) * scale_log2);
    w_other[r] = ex2((m_other[r] - top) * scale_log2);
    const float sum = w_own[r] * l[r] + w_other[r] * l_other[r];
    lse2[r] = top * scale_log2 + log2f(sum);
    w_own[r] /= sum;
    w_other[r] /= sum;
  }
  const int head = kv_head * kGroup + h;
  const bool ok0 = q0 + row < n_q, ok1 = q0 + row + 8 < n_q;
  const int64_t out_row = static_cast<int64_t>(q_begin + q0 + row) * kQHeads + head;
  __nv_bfloat16* out0 = output + out_row * kD + quad * 2;
  __nv_bfloat16* out1 = out0 + 8 * kQHeads * kD;
  if (rank == 0) {
    finish_half<0>(o, &sm.xo[0][0], ctid, w_own, w_other, out0, out1, ok0, ok1);
    if (quad == 0) {
      if (ok0) lse[out_row] = lse2[0];
      if (ok1) lse[out_row + 8 * kQHeads] = lse2[1];
    }
  } else {
    finish_half<1>(o, &sm.xo[0][0], ctid, w_own, w_other, out0, out1, ok0, ok1);
  }
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k_cache, tvm::ffi::TensorView v_cache,
         tvm::ffi::TensorView qo_indptr, tvm::ffi::TensorView kv_indptr, tvm::ffi::TensorView kv_indices,
         double sm_scale, tvm::ffi::TensorView output, tvm::ffi::TensorView lse) {
  if (q.ndim() != 3 || q.size(1) != kQHeads || q.size(2) != kD)
    TVM_FFI_THROW(RuntimeError) << "expected q[total_q, 24, 128]";
  const int64_t total_q = q.size(0);
  const int n_seqs = static_cast<int>(qo_indptr.size(0)) - 1;
  if (total_q == 0 || n_seqs <= 0) return;

  CUtensorMap map_q;
  const cuuint64_t dims[3] = {kD, kQHeads, static_cast<cuuint64_t>(total_q)};
  const cuuint64_t strides[2] = {kD * 2, kQHeads * kD * 2};
  const cuuint32_t box[3] = {64, 1, kBM};
  const cuuint32_t elem[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map_q, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, q.data_ptr(), dims, strides,
                                            box, elem, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  const size_t smem = sizeof(Smem) + 1024;
  cudaError_t error =
      cudaFuncSetAttribute(paged_prefill, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  // Tiles of all sequences: at most one partial tile more for each sequence.
  const int64_t max_tiles = n_seqs == 1 ? (total_q + kBM - 1) / kBM : total_q / kBM + n_seqs;
  paged_prefill<<<static_cast<unsigned>(max_tiles * kKvHeads * 2), kThreads, smem, stream>>>(
      map_q, static_cast<const __nv_bfloat16*>(k_cache.data_ptr()),
      static_cast<const __nv_bfloat16*>(v_cache.data_ptr()), static_cast<const int*>(qo_indptr.data_ptr()),
      static_cast<const int*>(kv_indptr.data_ptr()), static_cast<const int*>(kv_indices.data_ptr()), n_seqs,
      static_cast<float>(sm_scale * 1.4426950408889634), static_cast<__nv_bfloat16*>(output.data_ptr()),
      static_cast<float*>(lse.data_ptr()));
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching paged_prefill: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
