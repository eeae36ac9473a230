// gqa_ragged_prefill_causal_h32_kv4_d128: planner + persistent warp-specialised kernel, Q in registers, PDL.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

namespace ptx = cuda::ptx;

constexpr int kQHeads = 32;
constexpr int kKvHeads = 4;
constexpr int kGroup = kQHeads / kKvHeads;
constexpr int kD = 128;
constexpr int kBM = 64;
constexpr int kBN = 64;
constexpr int kPairs = kQHeads / 2;  // items of a tile: two query heads each
constexpr int kStages = 4;
constexpr int kThreads = 384;
constexpr int kMaxTiles = 1 << 16;
constexpr int kBuckets = 1024;
constexpr uint32_t kPanel = 64 * 128;        // 64 rows x 64 columns, 128-byte swizzle
constexpr uint32_t kTileBytes = 2 * kPanel;  // 64 rows x 128 columns
constexpr uint32_t kOPitch = kD * 2 + 16;    // padded rows: stmatrix without bank conflicts

// Scratch, rewritten by every call. A tile: first query, first key, valid queries, last key seen by the first query.
__device__ int4 g_tiles[kMaxTiles];
__device__ int g_num_tiles;
__device__ unsigned int g_next_item;

struct __align__(1024) Smem {
  uint8_t q[2][kTileBytes];
  uint8_t k[kStages][kTileBytes];
  uint8_t v[kStages][kTileBytes];
  uint8_t o[2][kBM * kOPitch];
  int4 tile;
  int pair;
  uint64_t q_full;
  uint64_t q_empty;
  uint64_t k_full[kStages];
  uint64_t k_empty[kStages];
  uint64_t v_full[kStages];
  uint64_t v_empty[kStages];
};

__global__ void __launch_bounds__(kBuckets) plan(const int* __restrict__ qo_indptr, const int* __restrict__ kv_indptr,
                                                 int n_seqs) {
  __shared__ int hist[kBuckets];
  __shared__ int scan[2][kBuckets];
  cudaTriggerProgrammaticLaunchCompletion();
  const int tid = threadIdx.x;
  hist[tid] = 0;
  __syncthreads();
  // One warp a sequence, one lane a tile; bucket 0 holds the longest tiles.
  auto bucket_of = [](int seen) { return kBuckets - 1 - min((seen + kBN - 1) / kBN, kBuckets - 1); };
  for (int pass = 0; pass < 2; ++pass) {
    for (int seq = tid / 32; seq < n_seqs; seq += kBuckets / 32) {
      const int q_begin = __ldg(qo_indptr + seq), n_q = __ldg(qo_indptr + seq + 1) - q_begin;
      const int kv_begin = __ldg(kv_indptr + seq), n_kv = __ldg(kv_indptr + seq + 1) - kv_begin;
      for (int t = tid % 32; t * kBM < n_q; t += 32) {
        const int valid = min(kBM, n_q - t * kBM);
        const int first_limit = n_kv - n_q + t * kBM;
        const int slot = atomicAdd(&hist[bucket_of(first_limit + valid)], 1);
        if (pass == 1 && slot < kMaxTiles) g_tiles[slot] = make_int4(q_begin + t * kBM, kv_begin, valid, first_limit);
      }
    }
    __syncthreads();
    if (pass == 0) {
      scan[0][tid] = hist[tid];
      __syncthreads();
      int cur = 0;
      for (int d = 1; d < kBuckets; d *= 2) {
        scan[cur ^ 1][tid] = scan[cur][tid] + (tid >= d ? scan[cur][tid - d] : 0);
        cur ^= 1;
        __syncthreads();
      }
      hist[tid] = scan[cur][tid] - hist[tid];  // first slot of the bucket
      if (tid == kBuckets - 1) {
        g_num_tiles = scan[cur][tid];
        g_next_item = 0;
      }
      __syncthreads();
    }
  }
}

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
__device__ __forceinline__ void mbar_expect(uint64_t* bar, uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}
__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
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

// S[64][64] (+)= Q(registers) K^T
__device__ __forceinline__ void wgmma_n64_rs(float (&d)[32], const uint32_t* a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
      "}\n"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// O[64][128] += P(registers) V
__device__ __forceinline__ void wgmma_n128_rs(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.b32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]),
        "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]),
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
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

__device__ __forceinline__ void issue_qk(float (&s)[32], const uint32_t (&q)[32], uint32_t k) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    wgmma_n64_rs(s, &q[4 * i], make_desc(k + (i / 4) * kPanel + (i % 4) * 32, 16, 1024), i > 0);
}
__device__ __forceinline__ void issue_pv(float (&o)[64], const uint32_t (&p)[16], uint32_t v) {
#pragma unroll
  for (int i = 0; i < 4; ++i) wgmma_n128_rs(o, &p[4 * i], make_desc(v + i * 2048, kPanel, 1024));
}

// limit: last key of the tile that the thread's first row sees (its second row sees 8 more).
__device__ __forceinline__ void softmax_tile(float (&s)[32], float (&m)[2], float (&l)[2], float (&alpha)[2],
                                             float scale_log2, bool masked, int limit, int quad) {
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

__global__ void __launch_bounds__(kThreads, 1)
    ragged_prefill(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                   const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* __restrict__ output,
                   float* __restrict__ lse, float scale_log2) {
  extern __shared__ uint8_t smem_raw[];
  Smem& sm = *reinterpret_cast<Smem*>(smem_raw + ((1024 - (smem_addr(smem_raw) & 1023)) & 1023));
  const int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    ptx::mbarrier_init(&sm.q_empty, 8);
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 1);
      ptx::mbarrier_init(&sm.v_full[i], 1);
      ptx::mbarrier_init(&sm.k_empty[i], 8);
      ptx::mbarrier_init(&sm.v_empty[i], 8);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  cudaGridDependencySynchronize();  // the plan is complete and visible

  if (wg == 0) {
    // ---------------------------------------------------------------- producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      const int n_items = __ldcg(&g_num_tiles) * kPairs;
      uint32_t it = 0;
      for (uint32_t n = 0;; ++n) {
        const int item = static_cast<int>(atomicAdd(&g_next_item, 1u));
        mbar_wait(&sm.q_empty, (n & 1) ^ 1);
        if (item >= n_items) {
          sm.pair = -1;
          mbar_arrive(&sm.q_full);
          break;
        }
        const int4 tile = __ldcg(&g_tiles[item / kPairs]);
        const int pair = item % kPairs;
        const int kv_head = pair * 2 / kGroup;
        sm.tile = tile;
        sm.pair = pair;
        mbar_expect(&sm.q_full, 2 * kTileBytes);
        const int32_t q_coords[4] = {0, tile.x, 0, pair * 2};
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q[0], &map_q, q_coords, &sm.q_full);
        const int n_kv = (tile.w + tile.z + kBN - 1) / kBN;
        for (int j = n_kv - 1; j >= 0; --j, ++it) {
          const uint32_t st = it % kStages, parity = ((it / kStages) & 1) ^ 1;
          const int32_t coords[4] = {0, tile.y + j * kBN, 0, kv_head};
          mbar_wait(&sm.k_empty[st], parity);
          mbar_expect(&sm.k_full[st], kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.k[st], &map_k, coords, &sm.k_full[st]);
          mbar_wait(&sm.v_empty[st], parity);
          mbar_expect(&sm.v_full[st], kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.v[st], &map_v, coords, &sm.v_full[st]);
        }
      }
    }
    return;
  }

  // ---------------------------------------------------------------- consumers: one query head each
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int cw = wg - 1;
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const int warp = tid / 32;
  const int quad = lane % 4;
  const int row = warp * 16 + lane / 4;                            // accumulator rows: row, row + 8
  const int mrow = warp * 16 + ((lane / 8) & 1) * 8 + lane % 8;    // row addressed for ldmatrix and stmatrix
  const int my_bar = 1 + cw, other_bar = 1 + (cw ^ 1), wg_bar = 3 + cw;

  auto release = [&](uint64_t* bar) {
    __syncwarp();
    if (lane == 0) mbar_arrive(bar);
  };

  if (cw == 1) bar_arrive(other_bar, 256);

  uint32_t it = 0;
  for (uint32_t n = 0;; ++n) {
    mbar_wait(&sm.q_full, n & 1);
    const int pair = sm.pair;
    if (pair < 0) break;
    const int4 tile = sm.tile;
    uint32_t q[32];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int chunk = 2 * i + lane / 16;
      const uint32_t addr =
          smem_addr(sm.q[cw]) + (chunk / 8) * kPanel + mrow * 128 + (((chunk % 8) ^ (mrow & 7)) << 4);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(q[4 * i]), "=r"(q[4 * i + 1]), "=r"(q[4 * i + 2]), "=r"(q[4 * i + 3])
                   : "r"(addr)
                   : "memory");
    }
    release(&sm.q_empty);

    const int n_kv = (tile.w + tile.z + kBN - 1) / kBN;
    const int last_key = tile.w + row;  // last key that `row` sees
    float s[32], o[64];
    uint32_t p[16];
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = 0.f;
    float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, alpha[2];

    int j = n_kv - 1;
    mbar_wait(&sm.k_full[it % kStages], (it / kStages) & 1);
    wgmma_fence();
    issue_qk(s, q, smem_addr(sm.k[it % kStages]));
    wgmma_commit();
    wgmma_wait<0>();
    pin(s);
    release(&sm.k_empty[it % kStages]);
    softmax_tile(s, m, l, alpha, scale_log2, (j + 1) * kBN > tile.w + 1, last_key - j * kBN, quad);
#pragma unroll
    for (int i = 0; i < 16; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

    for (--j; j >= 0; --j) {
      const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
      ++it;
      const uint32_t ks = it % kStages, kp = (it / kStages) & 1;
      mbar_wait(&sm.k_full[ks], kp);
      bar_sync(my_bar, 256);
      pin(s);
      wgmma_fence();
      issue_qk(s, q, smem_addr(sm.k[ks]));
      wgmma_commit();
      mbar_wait(&sm.v_full[vs], vp);
      issue_pv(o, p, smem_addr(sm.v[vs]));
      wgmma_commit();
      bar_arrive(other_bar, 256);
      wgmma_wait<1>();
      pin(s);
      release(&sm.k_empty[ks]);
      softmax_tile(s, m, l, alpha, scale_log2, (j + 1) * kBN > tile.w + 1, last_key - j * kBN, quad);
      wgmma_wait<0>();
      pin(o);
      release(&sm.v_empty[vs]);
#pragma unroll
      for (int i = 0; i < 64; ++i) o[i] *= alpha[(i >> 1) & 1];
#pragma unroll
      for (int i = 0; i < 16; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
    }
    {
      const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
      ++it;
      mbar_wait(&sm.v_full[vs], vp);
      pin(o);
      wgmma_fence();
      issue_pv(o, p, smem_addr(sm.v[vs]));
      wgmma_commit();
      wgmma_wait<0>();
      pin(o);
      release(&sm.v_empty[vs]);
    }

    // ---------------------------------------------------------------- epilogue
    const int head = pair * 2 + cw;
    float inv[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
      inv[r] = 1.f / l[r];
      if (quad == 0 && row + r * 8 < tile.z)
        lse[static_cast<int64_t>(tile.x + row + r * 8) * kQHeads + head] = m[r] * scale_log2 + log2f(l[r]);
    }
    if (tid < kBM) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());  // rows of the previous tile have left
    bar_sync(wg_bar, 128);
    const uint32_t o_base = smem_addr(sm.o[cw]) + mrow * kOPitch + (lane / 16) * 16;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(o_base + i * 32),
                   "r"(pack(o[8 * i] * inv[0], o[8 * i + 1] * inv[0])),
                   "r"(pack(o[8 * i + 2] * inv[1], o[8 * i + 3] * inv[1])),
                   "r"(pack(o[8 * i + 4] * inv[0], o[8 * i + 5] * inv[0])),
                   "r"(pack(o[8 * i + 6] * inv[1], o[8 * i + 7] * inv[1]))
                   : "memory");
    }
    ptx::fence_proxy_async(ptx::space_shared);
    bar_sync(wg_bar, 128);
    if (tid < kBM) {
      if (tid < tile.z)
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared,
                           output + (static_cast<int64_t>(tile.x + tid) * kQHeads + head) * kD,
                           sm.o[cw] + tid * kOPitch, static_cast<uint32_t>(kD * 2));
      ptx::cp_async_bulk_commit_group();
    }
  }
  if (cw == 0) bar_sync(my_bar, 256);  // the last token of the other warpgroup
  if (tid < kBM) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}

// [rows][heads][128] as (column in panel, row, panel, head): a box holds both panels of box_heads heads.
void encode(CUtensorMap* map, void* base, uint64_t rows, uint64_t heads, uint32_t box_heads) {
  const cuuint64_t dims[4] = {64, rows, 2, heads};
  const cuuint64_t strides[3] = {heads * kD * 2, 128, kD * 2};
  const cuuint32_t box[4] = {64, 64, 2, box_heads};
  const cuuint32_t elem[4] = {1, 1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v, tvm::ffi::TensorView qo_indptr,
         tvm::ffi::TensorView kv_indptr, double sm_scale, tvm::ffi::TensorView output, tvm::ffi::TensorView lse) {
  if (q.ndim() != 3 || q.size(1) != kQHeads || q.size(2) != kD)
    TVM_FFI_THROW(RuntimeError) << "expected q[total_q, 32, 128]";
  const int64_t total_q = q.size(0);
  const int64_t total_kv = k.size(0);
  const int n_seqs = static_cast<int>(qo_indptr.size(0)) - 1;
  if (total_q == 0 || n_seqs <= 0) return;
  if (total_q / kBM + n_seqs > kMaxTiles) TVM_FFI_THROW(RuntimeError) << "too many query tiles";

  CUtensorMap map_q, map_k, map_v;
  encode(&map_q, q.data_ptr(), static_cast<uint64_t>(total_q), kQHeads, 2);
  encode(&map_k, k.data_ptr(), static_cast<uint64_t>(total_kv), kKvHeads, 1);
  encode(&map_v, v.data_ptr(), static_cast<uint64_t>(total_kv), kKvHeads, 1);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  plan<<<1, kBuckets, 0, stream>>>(static_cast<const int*>(qo_indptr.data_ptr()),
                                   static_cast<const int*>(kv_indptr.data_ptr()), n_seqs);
  check(cudaGetLastError(), "launching plan");

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, q.device().device_id), "device attribute");
  const size_t smem = sizeof(Smem) + 1024;
  check(cudaFuncSetAttribute(ragged_prefill, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem)),
        "shared memory");
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(sms), 1, 1);
  config.blockDim = dim3(kThreads, 1, 1);
  config.dynamicSmemBytes = smem;
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, ragged_prefill, map_q, map_k, map_v,
                           static_cast<__nv_bfloat16*>(output.data_ptr()), static_cast<float*>(lse.data_ptr()),
                           static_cast<float>(sm_scale * 1.4426950408889634)),
        "launching ragged_prefill");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
