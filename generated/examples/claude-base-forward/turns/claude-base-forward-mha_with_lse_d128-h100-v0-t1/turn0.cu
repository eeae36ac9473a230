// MHA forward with LSE for D = 128. Cluster multicast of K/V, three consumer warpgroups, persistent blocks.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace cg = cooperative_groups;

namespace {

constexpr int HD = 128;
constexpr int WG_ROWS = 64;
constexpr int NUM_WG = 3;
constexpr int TILE_Q = WG_ROWS * NUM_WG;  // 192
constexpr int TILE_K = 64;
constexpr int PIPE = 4;
constexpr int CL = 2;
constexpr int NT = 128 * (NUM_WG + 1);

constexpr uint32_t Q_TILE_BYTES = TILE_Q * HD * 2;
constexpr uint32_t KV_TILE_BYTES = TILE_K * HD * 2;

struct SharedStorage {
  alignas(1024) __nv_bfloat16 q[2][TILE_Q][64];
  alignas(1024) __nv_bfloat16 k[PIPE][2][TILE_K][64];
  alignas(1024) __nv_bfloat16 v[PIPE][2][TILE_K][64];
  alignas(8) uint64_t q_full;
  alignas(8) uint64_t q_empty;
  alignas(8) uint64_t kv_full[PIPE];
  alignas(8) uint64_t kv_empty[PIPE];
};

struct Params {
  float* lse;
  int seq;
  int heads;
  int q_tiles;
  float scale;
  float scale_log2;
};

template <typename T>
__device__ __forceinline__ uint32_t sptr(const T* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

namespace ptx {

__device__ __forceinline__ void init(uint64_t* bar, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(sptr(bar)), "r"(n) : "memory");
}

__device__ __forceinline__ void expect_tx(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(sptr(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(sptr(bar)) : "memory");
}

__device__ __forceinline__ void arrive_remote(uint64_t* bar, uint32_t cta, bool pred) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      ".reg .b32 addr;\n\t"
      "setp.eq.u32 p, %2, 1;\n\t"
      "@p mapa.shared::cluster.u32 addr, %0, %1;\n\t"
      "@p mbarrier.arrive.shared::cluster.b64 _, [addr];\n\t"
      "}\n" ::"r"(sptr(bar)),
      "r"(cta), "r"(uint32_t(pred))
      : "memory");
}

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred P1;\n\t"
      "LAB_WAIT:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n\t"
      "@P1 bra DONE;\n\t"
      "bra LAB_WAIT;\n\t"
      "DONE:\n\t"
      "}\n" ::"r"(sptr(bar)),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void load3(void* dst, const CUtensorMap* map, uint64_t* bar, int c, int r, int h) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
      "[%5];\n" ::"r"(sptr(dst)),
      "l"(map), "r"(c), "r"(r), "r"(h), "r"(sptr(bar))
      : "memory");
}

__device__ __forceinline__ void load3_multicast(void* dst, const CUtensorMap* map, uint64_t* bar, uint16_t mask, int c,
                                                int r, int h) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, "
      "{%2, %3, %4}], [%5], %6;\n" ::"r"(sptr(dst)),
      "l"(map), "r"(c), "r"(r), "r"(h), "r"(sptr(bar)), "h"(mask)
      : "memory");
}

__device__ __forceinline__ void store3(const CUtensorMap* map, const void* src, int c, int r, int h) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];\n" ::"l"(map),
               "r"(c), "r"(r), "r"(h), "r"(sptr(src))
               : "memory");
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// S[64 x 64] (+)= Q K^T, both K-major.
__device__ __forceinline__ void wgmma_qk(float (&d)[8][4], uint64_t da, uint64_t db, int acc) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %34, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n\t"
      "}\n"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]),
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]),
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]),
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]),
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
      : "l"(da), "l"(db), "r"(acc));
}

// O[64 x 128] += P[64 x 16] V[16 x 128], P in registers, V transposed in shared memory.
__device__ __forceinline__ void wgmma_pv(float (&d)[16][4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                         uint64_t db) {
#define Q4(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      : Q4(0), Q4(1), Q4(2), Q4(3), Q4(4), Q4(5), Q4(6), Q4(7), Q4(8), Q4(9), Q4(10), Q4(11), Q4(12), Q4(13), Q4(14),
        Q4(15)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(db));
#undef Q4
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

template <int R>
__device__ __forceinline__ void reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(R));
}
template <int R>
__device__ __forceinline__ void reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(R));
}

}  // namespace ptx

__device__ __forceinline__ uint64_t smem_desc(uint32_t addr, uint32_t lead, uint32_t stride) {
  return uint64_t((addr >> 4) & 0x3fff) | uint64_t(lead >> 4) << 16 | uint64_t(stride >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ uint32_t pack_bf16(float a, float b) {
  auto v = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<uint32_t&>(v);
}

__global__ void __cluster_dims__(CL, 1, 1) __launch_bounds__(NT, 1)
    mha_fwd(const __grid_constant__ CUtensorMap tq, const __grid_constant__ CUtensorMap tk,
            const __grid_constant__ CUtensorMap tv, const __grid_constant__ CUtensorMap to, const Params prm) {
  extern __shared__ char smem_raw[];
  SharedStorage& sh =
      *reinterpret_cast<SharedStorage*>(smem_raw + ((1024 - (sptr(smem_raw) & 1023)) & 1023));
  cg::cluster_group cluster = cg::this_cluster();
  const uint32_t rank = cluster.block_rank();
  const int wg = threadIdx.x >> 7;
  const int pairs = (prm.q_tiles + CL - 1) / CL;
  const int work = pairs * prm.heads;
  const int n_kv = prm.seq / TILE_K;

  if (threadIdx.x == 0) {
    ptx::init(&sh.q_full, 1);
    ptx::init(&sh.q_empty, NUM_WG);
    for (int i = 0; i < PIPE; ++i) {
      ptx::init(&sh.kv_full[i], 1);
      ptx::init(&sh.kv_empty[i], NUM_WG * CL);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  cluster.sync();

  if (wg == 0) {
    ptx::reg_dealloc<32>();
    if (threadIdx.x == 0) {
      int n = 0;
      uint32_t q_phase = 0;
      for (int w = blockIdx.x / CL; w < work; w += gridDim.x / CL, q_phase ^= 1) {
        const int head = w / pairs;
        const int tile = (w % pairs) * CL + rank;
        ptx::wait(&sh.q_empty, q_phase ^ 1);
        ptx::expect_tx(&sh.q_full, Q_TILE_BYTES);
        ptx::load3(&sh.q[0], &tq, &sh.q_full, 0, tile * TILE_Q, head);
        ptx::load3(&sh.q[1], &tq, &sh.q_full, 64, tile * TILE_Q, head);
        for (int j = 0; j < n_kv; ++j, ++n) {
          const int slot = n % PIPE;
          ptx::wait(&sh.kv_empty[slot], ((n / PIPE) & 1) ^ 1);
          ptx::expect_tx(&sh.kv_full[slot], 2 * KV_TILE_BYTES);
          // This block brings panel `rank` of K and V to both.
          ptx::load3_multicast(&sh.k[slot][rank], &tk, &sh.kv_full[slot], 3, rank * 64, j * TILE_K, head);
          ptx::load3_multicast(&sh.v[slot][rank], &tv, &sh.kv_full[slot], 3, rank * 64, j * TILE_K, head);
        }
      }
    }
  } else {
    ptx::reg_alloc<160>();
    const int c = wg - 1;
    const int t = threadIdx.x & 127;
    const int warp = t >> 5;
    const int lane = t & 31;
    const uint32_t q_addr = sptr(&sh.q[0][c * WG_ROWS][0]);
    int n = 0;
    uint32_t q_phase = 0;
    for (int w = blockIdx.x / CL; w < work; w += gridDim.x / CL, q_phase ^= 1) {
      const int head = w / pairs;
      const int tile = (w % pairs) * CL + rank;
      float o[16][4] = {};
      float s[8][4];
      float top[2] = {-INFINITY, -INFINITY};
      float sum[2] = {0.f, 0.f};
      ptx::wait(&sh.q_full, q_phase);
      for (int j = 0; j < n_kv; ++j, ++n) {
        const int slot = n % PIPE;
        ptx::wait(&sh.kv_full[slot], (n / PIPE) & 1);
        const uint32_t k_addr = sptr(&sh.k[slot][0]);
        const uint32_t v_addr = sptr(&sh.v[slot][0]);
        ptx::fence();
#pragma unroll
        for (int kk = 0; kk < HD / 16; ++kk) {
          const uint32_t dq = (kk >> 2) * (TILE_Q * 128) + (kk & 3) * 32;
          const uint32_t dk = (kk >> 2) * (TILE_K * 128) + (kk & 3) * 32;
          ptx::wgmma_qk(s, smem_desc(q_addr + dq, 16, 1024), smem_desc(k_addr + dk, 16, 1024), kk > 0);
        }
        ptx::commit();
        ptx::wait_group<0>();

        float alpha[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float m = top[h];
#pragma unroll
          for (int i = 0; i < 8; ++i) m = fmaxf(m, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 1));
          m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));
          alpha[h] = ptx::ex2((top[h] - m) * prm.scale_log2);
          top[h] = m;
          const float shift = m * prm.scale_log2;
          float part = 0.f;
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            s[i][2 * h] = ptx::ex2(s[i][2 * h] * prm.scale_log2 - shift);
            s[i][2 * h + 1] = ptx::ex2(s[i][2 * h + 1] * prm.scale_log2 - shift);
            part += s[i][2 * h] + s[i][2 * h + 1];
          }
          sum[h] = sum[h] * alpha[h] + part;
        }
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          o[i][0] *= alpha[0];
          o[i][1] *= alpha[0];
          o[i][2] *= alpha[1];
          o[i][3] *= alpha[1];
        }
        ptx::fence();
#pragma unroll
        for (int kk = 0; kk < TILE_K / 16; ++kk) {
          ptx::wgmma_pv(o, pack_bf16(s[2 * kk][0], s[2 * kk][1]), pack_bf16(s[2 * kk][2], s[2 * kk][3]),
                        pack_bf16(s[2 * kk + 1][0], s[2 * kk + 1][1]), pack_bf16(s[2 * kk + 1][2], s[2 * kk + 1][3]),
                        smem_desc(v_addr + kk * 16 * 128, TILE_K * 128, 1024));
        }
        ptx::commit();
        ptx::wait_group<0>();
        ptx::arrive_remote(&sh.kv_empty[slot], t, t < CL);
      }

      const int row0 = tile * TILE_Q + c * WG_ROWS + warp * 16 + lane / 4;
      float inv[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        sum[h] += __shfl_xor_sync(~0u, sum[h], 1);
        sum[h] += __shfl_xor_sync(~0u, sum[h], 2);
        inv[h] = __fdividef(1.f, sum[h]);
        const int row = row0 + 8 * h;
        if ((lane & 3) == 0 && row < prm.seq)
          prm.lse[int64_t(head) * prm.seq + row] = top[h] * prm.scale + ptx::lg2(sum[h]) * 0.69314718056f;
      }
      // O over Q.
      const int r = c * WG_ROWS + warp * 16 + (lane & 15);
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const int col = i + (lane >> 4);
        const uint32_t dst = sptr(&sh.q[col >> 3][r][0]) + (((col & 7) ^ (r & 7)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(dst),
                     "r"(pack_bf16(o[i][0] * inv[0], o[i][1] * inv[0])),
                     "r"(pack_bf16(o[i][2] * inv[1], o[i][3] * inv[1])),
                     "r"(pack_bf16(o[i + 1][0] * inv[0], o[i + 1][1] * inv[0])),
                     "r"(pack_bf16(o[i + 1][2] * inv[1], o[i + 1][3] * inv[1]))
                     : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
      asm volatile("bar.sync %0, 128;\n" ::"r"(wg) : "memory");
      if (t == 0) {
        ptx::store3(&to, &sh.q[0][c * WG_ROWS], 0, tile * TILE_Q + c * WG_ROWS, head);
        ptx::store3(&to, &sh.q[1][c * WG_ROWS], 64, tile * TILE_Q + c * WG_ROWS, head);
        asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
        ptx::arrive(&sh.q_empty);
      }
    }
  }
  cluster.sync();
}

CUtensorMap tensor_map(void* p, int64_t seq, int64_t heads, int rows) {
  CUtensorMap m{};
  cuuint64_t extent[] = {HD, static_cast<cuuint64_t>(seq), static_cast<cuuint64_t>(heads)};
  cuuint64_t pitch[] = {HD * 2, static_cast<cuuint64_t>(seq) * HD * 2};
  cuuint32_t box[] = {64, static_cast<cuuint32_t>(rows), 1};
  cuuint32_t ones[] = {1, 1, 1};
  auto r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p, extent, pitch, box, ones,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: " << static_cast<int>(r);
  return m;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  Params prm;
  prm.seq = static_cast<int>(Q.size(2));
  prm.heads = static_cast<int>(Q.size(0) * Q.size(1));
  if (prm.seq == 0 || prm.heads == 0) return;
  if (prm.seq % TILE_K) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << TILE_K;
  prm.q_tiles = (prm.seq + TILE_Q - 1) / TILE_Q;
  prm.lse = static_cast<float*>(LSE.data_ptr());
  prm.scale = 0.08838834764831845f;
  prm.scale_log2 = prm.scale * 1.4426950408889634f;
  const CUtensorMap tq = tensor_map(Q.data_ptr(), prm.seq, prm.heads, TILE_Q);
  const CUtensorMap tk = tensor_map(K.data_ptr(), prm.seq, prm.heads, TILE_K);
  const CUtensorMap tv = tensor_map(V.data_ptr(), prm.seq, prm.heads, TILE_K);
  const CUtensorMap to = tensor_map(O.data_ptr(), prm.seq, prm.heads, WG_ROWS);
  const size_t smem = sizeof(SharedStorage) + 1024;
  cudaError_t e = cudaFuncSetAttribute(mha_fwd, cudaFuncAttributeMaxDynamicSharedMemorySize, smem);
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "attribute: " << cudaGetErrorString(e);
  int sms;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id);
  const int work = (prm.q_tiles + CL - 1) / CL * prm.heads;
  const int grid = std::min(sms / CL, work) * CL;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha_fwd<<<grid, NT, smem, stream>>>(tq, tk, tv, to, prm);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
