// mha_with_lse_d128: clusters of 2 CTAs, K/V multicast, warp-specialised, ping-pong softmax, persistent.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <math.h>
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
constexpr uint32_t kTileBytes = 128 * 128 * 2;   // one [128][128] bf16 tile, as two 64-column halves
constexpr uint32_t kHalfBytes = kTileBytes / 2;
constexpr uint16_t kBothCtas = 0x3;

struct __align__(1024) Smem {
  uint8_t q[kTileBytes];
  uint8_t k[kStages][kTileBytes];
  uint8_t v[kStages][kTileBytes];
  uint8_t o[kTileBytes];
  uint64_t q_full;
  uint64_t q_empty;
  uint64_t k_full[kStages];
  uint64_t k_empty[kStages];
  uint64_t v_full[kStages];
  uint64_t v_empty[kStages];
};

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void wait_local(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}

__device__ __forceinline__ void wait_cluster(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, bar, parity)) {
  }
}

__device__ __forceinline__ void expect_tx(uint64_t* bar, uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
}

__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Shared memory matrix descriptor, 128-byte swizzle.
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

// D[64][128] (+)= A(smem, K-major) B(smem, K-major)
__device__ __forceinline__ void wgmma_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
      "}, %64, %65, p, 1, 1, 0, 0;\n"
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
      : "l"(a), "l"(b), "r"(accumulate));
}

// D[64][128] += A(registers) B(smem, N-major)
__device__ __forceinline__ void wgmma_rs(float (&d)[64], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %69, 0;\n"
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
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));
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

__device__ __forceinline__ void issue_qk(float (&s)[64], uint32_t q, uint32_t k) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t off = (i / 4) * kHalfBytes + (i % 4) * 32;
    wgmma_ss(s, make_desc(q + off, 16, 1024), make_desc(k + off, 16, 1024), i > 0);
  }
}

__device__ __forceinline__ void issue_pv(float (&o)[64], const uint32_t (&p)[32], uint32_t v, int accumulate) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    wgmma_rs(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], make_desc(v + i * 2048, kHalfBytes, 1024),
             i > 0 ? 1 : accumulate);
  }
}

// Online softmax of one tile; leaves exponentials in s, per-thread partial sums in l, rescale factors in alpha.
__device__ __forceinline__ void softmax_tile(float (&s)[64], float (&m)[2], float (&l)[2], float (&alpha)[2],
                                             float scale_log2) {
  float mx[2] = {m[0], m[1]};
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    mx[0] = fmaxf(mx[0], fmaxf(s[4 * n], s[4 * n + 1]));
    mx[1] = fmaxf(mx[1], fmaxf(s[4 * n + 2], s[4 * n + 3]));
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    mx[r] = fmaxf(mx[r], __shfl_xor_sync(0xffffffffu, mx[r], 1));
    mx[r] = fmaxf(mx[r], __shfl_xor_sync(0xffffffffu, mx[r], 2));
    alpha[r] = ex2((m[r] - mx[r]) * scale_log2);
    m[r] = mx[r];
    l[r] *= alpha[r];
  }
  const float b0 = m[0] * scale_log2, b1 = m[1] * scale_log2;
#pragma unroll
  for (int n = 0; n < 16; ++n) {
    s[4 * n] = ex2(fmaf(s[4 * n], scale_log2, -b0));
    s[4 * n + 1] = ex2(fmaf(s[4 * n + 1], scale_log2, -b0));
    s[4 * n + 2] = ex2(fmaf(s[4 * n + 2], scale_log2, -b1));
    s[4 * n + 3] = ex2(fmaf(s[4 * n + 3], scale_log2, -b1));
    l[0] += s[4 * n] + s[4 * n + 1];
    l[1] += s[4 * n + 2] + s[4 * n + 3];
  }
}

__device__ __forceinline__ void pack_p(uint32_t (&p)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
}

__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    mha_fwd(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
            const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int S,
            int n_pairs, float scale, float scale_log2) {
  extern __shared__ uint8_t smem_raw[];
  Smem& sm = *reinterpret_cast<Smem*>(smem_raw + ((1024 - (smem_addr(smem_raw) & 1023)) & 1023));
  cg::cluster_group cluster = cg::this_cluster();
  const uint32_t rank = cluster.block_rank();
  const int cluster_id = blockIdx.x / 2;
  const int n_clusters = gridDim.x / 2;
  const int pairs_per_head = S / (2 * kBM);
  const int n_kv = S / kBN;
  const int wg = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    ptx::mbarrier_init(&sm.q_empty, 8);
    for (int i = 0; i < kStages; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 1);
      ptx::mbarrier_init(&sm.v_full[i], 1);
      ptx::mbarrier_init(&sm.k_empty[i], 16);  // 8 consumer warps in each of the 2 CTAs
      ptx::mbarrier_init(&sm.v_empty[i], 16);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  cluster.sync();

  if (wg == 0) {
    // ---------------------------------------------------------------- producer
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      uint32_t it = 0, tile = 0;
      for (int t = cluster_id; t < n_pairs; t += n_clusters, ++tile) {
        const int head_row = (t / pairs_per_head) * S;
        const int q_row = head_row + (t % pairs_per_head) * (2 * kBM) + static_cast<int>(rank) * kBM;
        wait_local(&sm.q_empty, (tile & 1) ^ 1);
        expect_tx(&sm.q_full, kTileBytes);
        for (int h = 0; h < 2; ++h) {
          const int32_t coords[2] = {h * 64, q_row};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.q + h * kHalfBytes, &map_q, coords,
                                    &sm.q_full);
        }
        for (int j = 0; j < n_kv; ++j, ++it) {
          const uint32_t st = it % kStages, ph = (it / kStages) & 1;
          const int32_t coords[2] = {static_cast<int32_t>(rank) * 64, head_row + j * kBN};
          wait_cluster(&sm.k_empty[st], ph ^ 1);
          expect_tx(&sm.k_full[st], kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.k[st] + rank * kHalfBytes, &map_k,
                                    coords, &sm.k_full[st], static_cast<uint16_t>(kBothCtas));
          wait_cluster(&sm.v_empty[st], ph ^ 1);
          expect_tx(&sm.v_full[st], kTileBytes);
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, sm.v[st] + rank * kHalfBytes, &map_v,
                                    coords, &sm.v_full[st], static_cast<uint16_t>(kBothCtas));
        }
      }
    }
    __syncwarp();
  } else {
    // ---------------------------------------------------------------- consumers
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int cw = wg - 1;
    const int tid = threadIdx.x % 128;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int my_bar = 1 + cw, other_bar = 1 + (cw ^ 1), wg_bar = 3 + cw;
    const uint32_t q_addr = smem_addr(sm.q) + cw * 64 * 128;

    // Lanes 0 and 1 of a warp hand a stage back to the producers of both CTAs.
    auto release = [&](uint64_t* bar) {
      if (lane < 2) {
        uint64_t* remote = cluster.map_shared_rank(bar, lane);
        ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, remote);
      }
    };

    if (cw == 1) bar_arrive(other_bar, 256);  // warpgroup 0 issues first

    uint32_t it = 0, tile = 0;
    for (int t = cluster_id; t < n_pairs; t += n_clusters, ++tile) {
      const int head_row = (t / pairs_per_head) * S;
      const int q_row = head_row + (t % pairs_per_head) * (2 * kBM) + static_cast<int>(rank) * kBM + cw * 64;
      float o[64], s[64];
      uint32_t p[32];
      float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, alpha[2];

      wait_local(&sm.q_full, tile & 1);
      wait_local(&sm.k_full[it % kStages], (it / kStages) & 1);
      wgmma_fence();
      issue_qk(s, q_addr, smem_addr(sm.k[it % kStages]));
      wgmma_commit();
      wgmma_wait<0>();
      pin(s);
      release(&sm.k_empty[it % kStages]);
      softmax_tile(s, m, l, alpha, scale_log2);
      pack_p(p, s);

      int accumulate = 0;
      for (int j = 1; j < n_kv; ++j) {
        const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
        ++it;
        const uint32_t ks = it % kStages, kp = (it / kStages) & 1;
        wait_local(&sm.k_full[ks], kp);
        bar_sync(my_bar, 256);
        pin(s);
        wgmma_fence();
        issue_qk(s, q_addr, smem_addr(sm.k[ks]));
        wgmma_commit();
        wait_local(&sm.v_full[vs], vp);
        issue_pv(o, p, smem_addr(sm.v[vs]), accumulate);
        wgmma_commit();
        bar_arrive(other_bar, 256);
        accumulate = 1;
        wgmma_wait<1>();
        pin(s);
        release(&sm.k_empty[ks]);
        softmax_tile(s, m, l, alpha, scale_log2);
        wgmma_wait<0>();
        pin(o);
        release(&sm.v_empty[vs]);
#pragma unroll
        for (int n = 0; n < 16; ++n) {
          o[4 * n] *= alpha[0];
          o[4 * n + 1] *= alpha[0];
          o[4 * n + 2] *= alpha[1];
          o[4 * n + 3] *= alpha[1];
        }
        pack_p(p, s);
      }
      // All QK products of this tile are done: Q may be replaced.
      if (lane == 0) ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &sm.q_empty);
      {
        const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
        ++it;
        wait_local(&sm.v_full[vs], vp);
        wgmma_fence();
        issue_pv(o, p, smem_addr(sm.v[vs]), accumulate);
        wgmma_commit();
        wgmma_wait<0>();
        pin(o);
        release(&sm.v_empty[vs]);
      }

      // ---------------------------------------------------------------- epilogue
      float inv[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
        inv[r] = 1.f / l[r];
      }
      if (lane % 4 == 0) {
        const int row = q_row + warp * 16 + lane / 4;
        lse[row] = m[0] * scale + logf(l[0]);
        lse[row + 8] = m[1] * scale + logf(l[1]);
      }
      if (tid == 0) ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
      bar_sync(wg_bar, 128);
      const int row = cw * 64 + warp * 16 + ((lane / 8) & 1) * 8 + lane % 8;
      const uint32_t o_base = smem_addr(sm.o) + row * 128;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int chunk = 2 * i + lane / 16;
        const uint32_t addr = o_base + (chunk / 8) * kHalfBytes + (((chunk % 8) ^ (row & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                     "r"(pack(o[8 * i] * inv[0], o[8 * i + 1] * inv[0])),
                     "r"(pack(o[8 * i + 2] * inv[1], o[8 * i + 3] * inv[1])),
                     "r"(pack(o[8 * i + 4] * inv[0], o[8 * i + 5] * inv[0])),
                     "r"(pack(o[8 * i + 6] * inv[1], o[8 * i + 7] * inv[1]))
                     : "memory");
      }
      ptx::fence_proxy_async(ptx::space_shared);
      bar_sync(wg_bar, 128);
      if (tid == 0) {
        for (int h = 0; h < 2; ++h) {
          const int32_t coords[2] = {h * 64, q_row};
          ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map_o, coords,
                                    sm.o + h * kHalfBytes + cw * 64 * 128);
        }
        ptx::cp_async_bulk_commit_group();
      }
    }
    if (cw == 0) bar_sync(my_bar, 256);  // takes the last token of warpgroup 1
    if (tid == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    __syncwarp();
  }
  cluster.sync();  // nobody leaves while the other CTA may still write or arrive here
}

void encode(CUtensorMap* map, void* base, uint64_t rows, uint32_t box_rows) {
  const cuuint64_t dims[2] = {kD, rows};
  const cuuint64_t strides[1] = {kD * 2};
  const cuuint32_t box[2] = {64, box_rows};
  const cuuint32_t elem[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 128]";
  const int64_t BH = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (S % (2 * kBM) != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256";
  if (BH == 0 || S == 0) return;
  CUtensorMap map_q, map_k, map_v, map_o;
  const uint64_t rows = static_cast<uint64_t>(BH * S);
  encode(&map_q, Q.data_ptr(), rows, kBM);
  encode(&map_k, K.data_ptr(), rows, kBN);
  encode(&map_v, V.data_ptr(), rows, kBN);
  encode(&map_o, O.data_ptr(), rows, 64);

  int sms = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id);
  const int n_pairs = static_cast<int>(BH * (S / (2 * kBM)));
  const int clusters = n_pairs < sms / 2 ? n_pairs : sms / 2;
  const size_t smem = sizeof(Smem) + 1024;
  cudaError_t error =
      cudaFuncSetAttribute(mha_fwd, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(error);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  const float scale = 1.0f / sqrtf(static_cast<float>(kD));
  mha_fwd<<<clusters * 2, kThreads, smem, stream>>>(map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                                                    static_cast<int>(S), n_pairs, scale,
                                                    scale * 1.4426950408889634f);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching mha_fwd: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
