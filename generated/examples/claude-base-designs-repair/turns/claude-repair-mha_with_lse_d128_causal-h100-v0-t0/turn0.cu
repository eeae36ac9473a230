// Causal attention forward with LSE, D = 128. Split of the keys over a cluster of 2, exchange through DSMEM.
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

constexpr int kD = 128;
constexpr int kBM = 128;
constexpr int kBN = 128;
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr int kHeadGroup = 16;                      // 32 MB of K and V at S = 4096
constexpr uint32_t kTileBytes = 128 * kD * 2;       // 32 KB, as [2 chunks][128 rows][64 columns]
constexpr uint32_t kChunkBytes = 128 * 128;         // 16 KB
constexpr uint32_t kRecvVecs = 9;                   // float4 a thread: 8 of accumulators, 1 of maxima and sums
constexpr uint32_t kRecvBytes = kRecvVecs * 128 * 16;  // a warpgroup
constexpr int kSmemBytes = kTileBytes + 2 * kStages * kTileBytes + 2 * kRecvBytes + 1024;
constexpr float kScale = 0.08838834764831845f;  // 1 / sqrt(128)
constexpr float kScaleLog2 = kScale * 1.4426950408889634f;
constexpr int kConsumerWarps = 8;

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void wait_parity(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}
// What is waited for was written by the other CTA of the cluster.
__device__ __forceinline__ void wait_parity_cluster(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity)) {
  }
}
__device__ __forceinline__ void arrive(uint64_t* bar) {
  (void)ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar);
}

// 128 byte swizzle. K-major: SBO 1024. MN-major: LBO from 64 columns to the next 64, SBO from 8 keys to the next 8.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>((lbo & 0x3FFFF) >> 4) << 16) |
         (static_cast<uint64_t>((sbo & 0x3FFFF) >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
template <int N>
__device__ __forceinline__ void pin(float (&v)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(v[i])::"memory");
}
__device__ __forceinline__ void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void bar_arrive(int id, int n) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

#define F4(d, i) "+f"(d[(i)]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define F16(d, i) F4(d, (i)), F4(d, (i) + 4), F4(d, (i) + 8), F4(d, (i) + 12)
#define REGS64                                                              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "

__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGS64
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
      : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ void wgmma_rs(float (&d)[64], const uint32_t* a, uint64_t db) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " REGS64
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(1));
}

__device__ __forceinline__ void qk_tile(float (&s)[64], uint32_t q, uint32_t k) {
  const uint64_t dq = make_desc(q, 16, 1024);
  const uint64_t dk = make_desc(k, 16, 1024);
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const uint32_t at = ((i >> 2) * kChunkBytes + (i & 3) * 32) >> 4;
    wgmma_ss(s, dq + at, dk + at, i != 0);
  }
}
__device__ __forceinline__ void pv_tile(float (&o)[64], const uint32_t (&p)[32], uint32_t v) {
  const uint64_t dv = make_desc(v, kChunkBytes, 1024);
#pragma unroll
  for (int i = 0; i < kBN / 16; ++i) wgmma_rs(o, p + 4 * i, dv + i * (2048 >> 4));
}

__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}
__device__ __forceinline__ float ex2(float x) {
  float y;
  asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void softmax_step(float (&s)[64], float (&m)[2], float (&l)[2], float (&alpha)[2]) {
  float neg[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float mx = m[r];
#pragma unroll
    for (int g = 0; g < 16; ++g) mx = fmaxf(mx, fmaxf(s[4 * g + 2 * r], s[4 * g + 2 * r + 1]));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
    alpha[r] = ex2((m[r] - mx) * kScaleLog2);
    m[r] = mx;
    neg[r] = -mx * kScaleLog2;
  }
  float sum[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    const int r = (i >> 1) & 1;
    s[i] = ex2(fmaf(s[i], kScaleLog2, neg[r]));
    sum[r] += s[i];
  }
  l[0] = fmaf(l[0], alpha[0], sum[0]);
  l[1] = fmaf(l[1], alpha[1], sum[1]);
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_split(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                    const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse,
                    int S, int heads) {
  extern __shared__ uint8_t smem_raw[];
  __shared__ alignas(8) uint64_t q_full;
  __shared__ alignas(8) uint64_t k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  __shared__ alignas(8) uint64_t recv_full[2];
  uint8_t* smem = smem_raw + ((1024u - (smem_u32(smem_raw) & 1023u)) & 1023u);
  uint8_t* smem_q = smem;
  uint8_t* smem_k = smem_q + kTileBytes;
  uint8_t* smem_v = smem_k + kStages * kTileBytes;
  uint8_t* smem_recv = smem_v + kStages * kTileBytes;

  cg::cluster_group cluster = cg::this_cluster();
  const int rank = static_cast<int>(cluster.block_rank());
  const int wg = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;

  // Groups of heads; in a group the long tiles first, heads inside.
  const int tiles = S / kBM;
  const int c = blockIdx.x / 2;
  const int group = c / (kHeadGroup * tiles);
  const int rem = c - group * kHeadGroup * tiles;
  const int here = min(kHeadGroup, heads - group * kHeadGroup);
  const int qt = tiles - 1 - rem / here;
  const int bh = group * kHeadGroup + rem % here;
  const int q_row = bh * S + qt * kBM;
  // Key tiles of this CTA: qt - rank, qt - rank - 2, ... >= 0. Rank 1 has none if qt is 0.
  const int first = qt - rank;
  const int n = first < 0 ? 0 : first / 2 + 1;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&q_full, 1);
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&k_full[s], 1);
      ptx::mbarrier_init(&v_full[s], 1);
      ptx::mbarrier_init(&k_empty[s], kConsumerWarps);
      ptx::mbarrier_init(&v_empty[s], kConsumerWarps);
    }
    ptx::mbarrier_init(&recv_full[0], 1);
    ptx::mbarrier_init(&recv_full[1], 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &recv_full[0], +kRecvBytes);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &recv_full[1], +kRecvBytes);
  }
  __syncthreads();
  cluster.sync();  // the other CTA's barriers are ready before anything is sent to it

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &q_full, +kTileBytes);
      const int32_t cq[3] = {0, q_row, 0};
      ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_q, &map_q, cq, &q_full);
      for (int i = 0; i < n; ++i) {
        const int s = i % kStages;
        const uint32_t phase = (i / kStages) & 1;
        const int32_t ck[3] = {0, bh * S + (first - 2 * i) * kBN, 0};
        wait_parity(&k_empty[s], phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &k_full[s], +kTileBytes);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_k + s * kTileBytes, &map_k, ck,
                                  &k_full[s]);
        wait_parity(&v_empty[s], phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &v_full[s], +kTileBytes);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, smem_v + s * kTileBytes, &map_v, ck,
                                  &v_full[s]);
      }
    }
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int cw = wg - 1;
    const int tid = threadIdx.x & 127;
    const int warp = tid / 32;
    const int local_row = cw * 64 + warp * 16 + lane / 4;
    const uint32_t q_addr = smem_u32(smem_q) + cw * (64 * 128);
    const uint32_t k_addr = smem_u32(smem_k);
    const uint32_t v_addr = smem_u32(smem_v);

    float s[64];
    float o[64];
    uint32_t p[32];
    float m[2] = {-INFINITY, -INFINITY};
    float l[2] = {0.f, 0.f};
    float alpha[2];
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = 0.f;

    wait_parity(&q_full, 0);
    if (n > 0) {
      if (cw == 1 && n > 1) bar_arrive(1, 256);
      wait_parity(&k_full[0], 0);
      wgmma_fence();
      qk_tile(s, q_addr, k_addr);
      wgmma_commit();
      wgmma_wait<0>();
      pin(s);
      if (lane == 0) arrive(&k_empty[0]);
      if (rank == 0) {  // the tile on the diagonal
#pragma unroll
        for (int i = 0; i < 64; ++i) {
          const int col = 8 * (i >> 2) + 2 * (lane % 4) + (i & 1);
          if (col > local_row + 8 * ((i >> 1) & 1)) s[i] = -INFINITY;
        }
      }
      softmax_step(s, m, l, alpha);
#pragma unroll
      for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

#pragma unroll 1
      for (int i = 1; i < n; ++i) {
        const int st = i % kStages;
        const int sv = (i - 1) % kStages;
        wait_parity(&k_full[st], (i / kStages) & 1);
        wait_parity(&v_full[sv], ((i - 1) / kStages) & 1);
        bar_sync(1 + cw, 256);
        wgmma_fence();
        qk_tile(s, q_addr, k_addr + st * kTileBytes);
        wgmma_commit();
        pv_tile(o, p, v_addr + sv * kTileBytes);
        wgmma_commit();
        if (cw == 0 || i + 1 < n) bar_arrive(1 + (cw ^ 1), 256);
        wgmma_wait<1>();
        pin(s);
        if (lane == 0) arrive(&k_empty[st]);
        softmax_step(s, m, l, alpha);
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) arrive(&v_empty[sv]);
#pragma unroll
        for (int e = 0; e < 64; ++e) o[e] *= alpha[(e >> 1) & 1];
#pragma unroll
        for (int e = 0; e < 32; ++e) p[e] = pack(s[2 * e], s[2 * e + 1]);
      }

      const int sv = (n - 1) % kStages;
      wait_parity(&v_full[sv], ((n - 1) / kStages) & 1);
      wgmma_fence();
      pv_tile(o, p, v_addr + sv * kTileBytes);
      wgmma_commit();
      wgmma_wait<0>();
      pin(o);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
      }
    }

    // Exchange: the same thread of the other CTA holds the same rows and columns. CTA r finishes columns [64 r, 64 r + 64).
    float* recv = reinterpret_cast<float*>(smem_recv + cw * kRecvBytes) + tid * 4;
    float* remote = cluster.map_shared_rank(recv, rank ^ 1);
    uint64_t* remote_bar = cluster.map_shared_rank(&recv_full[cw], rank ^ 1);
    {
      const float v[4] = {m[0], l[0], m[1], l[1]};
      ptx::st_async(remote, v, remote_bar);
    }
    float mine[32];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        mine[4 * i + e] = rank == 0 ? o[4 * i + e] : o[32 + 4 * i + e];
        v[e] = rank == 0 ? o[32 + 4 * i + e] : o[4 * i + e];
      }
      ptx::st_async(remote + (i + 1) * 512, v, remote_bar);
    }

    wait_parity_cluster(&recv_full[cw], 0);
    const float4 ml = *reinterpret_cast<const float4*>(recv);
    const float other_m[2] = {ml.x, ml.z};
    const float other_l[2] = {ml.y, ml.w};
    float wa[2], wb[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float mx = fmaxf(m[r], other_m[r]);  // finite: rank 0 has the diagonal
      const float a = ex2((m[r] - mx) * kScaleLog2);
      const float b = ex2((other_m[r] - mx) * kScaleLog2);
      const float sum = l[r] * a + other_l[r] * b;
      const float inv = 1.f / sum;
      wa[r] = a * inv;
      wb[r] = b * inv;
      if (rank == 0 && lane % 4 == 0)
        lse[static_cast<int64_t>(q_row) + local_row + 8 * r] = mx * kScale + __logf(sum);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 v = *reinterpret_cast<const float4*>(recv + (i + 1) * 512);
      mine[4 * i] = mine[4 * i] * wa[0] + v.x * wb[0];
      mine[4 * i + 1] = mine[4 * i + 1] * wa[0] + v.y * wb[0];
      mine[4 * i + 2] = mine[4 * i + 2] * wa[1] + v.z * wb[1];
      mine[4 * i + 3] = mine[4 * i + 3] * wa[1] + v.w * wb[1];
    }

    // Staged over this warpgroup's rows of the first chunk of Q, which are read by nobody else.
    bar_sync(3 + cw, 128);
    const int st_row = warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int unit = (2 * j + (lane >> 4)) ^ (st_row & 7);
      const float* v = mine + 8 * j;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(q_addr + st_row * 128 +
                                                                                            unit * 16),
                   "r"(pack(v[0], v[1])), "r"(pack(v[2], v[3])), "r"(pack(v[4], v[5])), "r"(pack(v[6], v[7]))
                   : "memory");
    }
    ptx::fence_proxy_async(ptx::space_shared);
    bar_sync(3 + cw, 128);
    if (tid == 0) {
      const int32_t co[2] = {64 * rank, q_row + cw * 64};
      ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map_o, co, smem_q + cw * (64 * 128));
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>{});
    }
    __syncwarp();
  }
  cluster.sync();
}

void check(CUresult r) {
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
}
void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

// [rows, 128] seen as (64 columns, rows, 2 chunks): one box loads a tile chunk by chunk.
void encode_load(CUtensorMap* map, void* base, int64_t rows) {
  const cuuint64_t dims[3] = {64, static_cast<cuuint64_t>(rows), 2};
  const cuuint64_t strides[2] = {kD * 2, 128};
  const cuuint32_t box[3] = {64, 128, 2};
  const cuuint32_t elem[3] = {1, 1, 1};
  check(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box, elem,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}
void encode_store(CUtensorMap* map, void* base, int64_t rows) {
  const cuuint64_t dims[2] = {kD, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kD * 2};
  const cuuint32_t box[2] = {64, 64};
  const cuuint32_t elem[2] = {1, 1};
  check(cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box, elem,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 128]";
  const int64_t bh = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (bh == 0 || S == 0) return;
  if (S % kBM != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kBM;
  CUtensorMap map_q, map_k, map_v, map_o;
  encode_load(&map_q, Q.data_ptr(), bh * S);
  encode_load(&map_k, K.data_ptr(), bh * S);
  encode_load(&map_v, V.data_ptr(), bh * S);
  encode_store(&map_o, O.data_ptr(), bh * S);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  check(cudaFuncSetAttribute(attention_split, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
        "shared memory");

  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(2 * bh * (S / kBM)));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kSmemBytes;
  config.stream = stream;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = 2;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, attention_split, map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                           static_cast<int>(S), static_cast<int>(bh)),
        "launching attention");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
