// mha_with_lse_d96_causal: 64-byte swizzle panels, dynamic persistent scheduler, warp-specialised, ping-pong.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <math.h>
#include <utility>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

using Barrier = cuda::barrier<cuda::thread_scope_block>;
namespace cde = cuda::device::experimental;

constexpr int kD = 96;
constexpr int kBM = 128;
constexpr int kBN = 128;
constexpr int kStages = 3;
constexpr int kQBufs = 2;
constexpr int kThreads = 384;
constexpr int kHeadGroup = 16;                    // heads in flight together: their K and V stay in L2
constexpr uint32_t kPanel = 128 * 64;             // 128 rows of 32 columns
constexpr uint32_t kTile = 3 * kPanel;            // 24 KB
constexpr uint32_t kOPanel = 64 * 64;             // 64 rows of 32 columns
constexpr uint32_t kOTile = 3 * kOPanel;          // output of one warpgroup

constexpr uint32_t kOffQ = 0;
constexpr uint32_t kOffK = kOffQ + kQBufs * kTile;
constexpr uint32_t kOffV = kOffK + kStages * kTile;
constexpr uint32_t kOffO = kOffV + kStages * kTile;
constexpr uint32_t kOffBar = kOffO + 2 * kOTile;
constexpr int kNumBars = 2 * kQBufs + 4 * kStages;
constexpr uint32_t kOffTile = kOffBar + kNumBars * 8;
constexpr uint32_t kSmem = kOffTile + 16 + 1024;

__device__ unsigned int g_next_tile;

__device__ __forceinline__ uint32_t smem_addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// K-major or MN-major matrix descriptor with the 64-byte swizzle.
__device__ __forceinline__ uint64_t make_desc(uint32_t addr, uint32_t lbo, uint32_t sbo) {
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(lbo >> 4) << 16) |
         (static_cast<uint64_t>(sbo >> 4) << 32) | (static_cast<uint64_t>(2) << 62);
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

__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void wgmma_n128_ss(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
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

__device__ __forceinline__ void wgmma_n96_rs(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                             uint64_t b, int accumulate) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
      "}, {%48, %49, %50, %51}, %52, p, 1, 1, 1;\n"
      "}\n"
      :
        "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
        "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]),
        "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
        "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
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
  for (int i = 0; i < 6; ++i) {
    const uint32_t off = (i / 2) * kPanel + (i % 2) * 32;
    wgmma_n128_ss(s, make_desc(q + off, 16, 512), make_desc(k + off, 16, 512), i > 0);
  }
}

__device__ __forceinline__ void issue_pv(float (&o)[48], const uint32_t (&p)[32], uint32_t v, int accumulate) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    wgmma_n96_rs(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], make_desc(v + i * 1024, kPanel, 512),
                 i > 0 ? 1 : accumulate);
  }
}

__device__ __forceinline__ void softmax_tile(float (&s)[64], float (&m)[2], float (&l)[2], float (&alpha)[2],
                                             float scale_log2) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float mx = m[r];
#pragma unroll
    for (int n = 0; n < 16; ++n) mx = fmaxf(mx, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 1));
    mx = fmaxf(mx, __shfl_xor_sync(0xffffffffu, mx, 2));
    alpha[r] = ex2((m[r] - mx) * scale_log2);
    m[r] = mx;
    const float base = mx * scale_log2;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
      const float e0 = ex2(fmaf(s[4 * n + 2 * r], scale_log2, -base));
      const float e1 = ex2(fmaf(s[4 * n + 2 * r + 1], scale_log2, -base));
      s[4 * n + 2 * r] = e0;
      s[4 * n + 2 * r + 1] = e1;
      sum += e0 + e1;
    }
    l[r] = l[r] * alpha[r] + sum;
  }
}

// Position of tile t in the order: groups of heads, in a group the longest query tiles first.
__device__ __forceinline__ void decode_tile(int t, int n_q, int heads, int& head, int& qt) {
  const int per_group = kHeadGroup * n_q;
  const int group = t / per_group;
  const int rest = t - group * per_group;
  const int in_group = min(kHeadGroup, heads - group * kHeadGroup);
  head = group * kHeadGroup + rest % in_group;
  qt = n_q - 1 - rest / in_group;
}

__global__ void __launch_bounds__(kThreads, 1)
    mha_causal(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
               const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int S,
               int heads, float scale, float scale_log2) {
  extern __shared__ uint8_t smem_raw[];
  uint8_t* smem = smem_raw + ((1024 - (smem_addr(smem_raw) & 1023)) & 1023);
  Barrier* bars = reinterpret_cast<Barrier*>(smem + kOffBar);
  Barrier* q_full = bars;
  Barrier* q_empty = q_full + kQBufs;
  Barrier* k_full = q_empty + kQBufs;
  Barrier* k_empty = k_full + kStages;
  Barrier* v_full = k_empty + kStages;
  Barrier* v_empty = v_full + kStages;
  volatile int* tile_slot = reinterpret_cast<volatile int*>(smem + kOffTile);

  const int n_q = S / kBM;
  const int n_tiles = n_q * heads;
  const int wg = threadIdx.x / 128;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kQBufs; ++i) {
      init(q_full + i, 1);
      init(q_empty + i, 8);
    }
    for (int i = 0; i < kStages; ++i) {
      init(k_full + i, 1);
      init(k_empty + i, 8);
      init(v_full + i, 1);
      init(v_empty + i, 8);
    }
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      uint32_t it = 0;
      for (uint32_t n = 0;; ++n) {
        const uint32_t qb = n % kQBufs, qp = (n / kQBufs) & 1;
        const int t = static_cast<int>(atomicAdd(&g_next_tile, 1u));
        q_empty[qb].wait_parity(qp ^ 1);
        if (t >= n_tiles) {
          tile_slot[qb] = -1;
          (void)q_full[qb].arrive();
          break;
        }
        tile_slot[qb] = t;
        int head, qt;
        decode_tile(t, n_q, heads, head, qt);
        const int row0 = head * S;
        cde::cp_async_bulk_tensor_3d_global_to_shared(smem + kOffQ + qb * kTile, &map_q, 0, row0 + qt * kBM, 0,
                                                      q_full[qb]);
        (void)cuda::device::barrier_arrive_tx(q_full[qb], 1, kTile);
        for (int j = qt; j >= 0; --j, ++it) {
          const uint32_t st = it % kStages, ph = (it / kStages) & 1;
          k_empty[st].wait_parity(ph ^ 1);
          cde::cp_async_bulk_tensor_3d_global_to_shared(smem + kOffK + st * kTile, &map_k, 0, row0 + j * kBN, 0,
                                                        k_full[st]);
          (void)cuda::device::barrier_arrive_tx(k_full[st], 1, kTile);
          v_empty[st].wait_parity(ph ^ 1);
          cde::cp_async_bulk_tensor_3d_global_to_shared(smem + kOffV + st * kTile, &map_v, 0, row0 + j * kBN, 0,
                                                        v_full[st]);
          (void)cuda::device::barrier_arrive_tx(v_full[st], 1, kTile);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int cw = wg - 1;
    const int tid = threadIdx.x % 128;
    const int lane = tid % 32;
    const int warp = tid / 32;
    const int my_bar = 1 + cw, other_bar = 1 + (cw ^ 1), wg_bar = 3 + cw;
    uint8_t* o_smem = smem + kOffO + cw * kOTile;

    auto release = [&](Barrier& b) {
      __syncwarp();
      if (lane == 0) (void)b.arrive();
    };

    if (cw == 1) bar_arrive(other_bar, 256);

    uint32_t it = 0;
    for (uint32_t n = 0;; ++n) {
      const uint32_t qb = n % kQBufs, qp = (n / kQBufs) & 1;
      q_full[qb].wait_parity(qp);
      const int t = tile_slot[qb];
      if (t < 0) break;
      int head, qt;
      decode_tile(t, n_q, heads, head, qt);
      const uint32_t q_addr = smem_addr(smem + kOffQ + qb * kTile) + cw * 64 * 64;

      float s[64], o[48];
      uint32_t p[32];
      float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, alpha[2];

      // Diagonal tile first: the only one that needs the mask, and every row sees a key there.
      k_full[it % kStages].wait_parity((it / kStages) & 1);
      wgmma_fence();
      issue_qk(s, q_addr, smem_addr(smem + kOffK + (it % kStages) * kTile));
      wgmma_commit();
      wgmma_wait<0>();
      pin(s);
      release(k_empty[it % kStages]);
      {
        const int r0 = cw * 64 + warp * 16 + lane / 4;
        const int c0 = (lane % 4) * 2;
#pragma unroll
        for (int i = 0; i < 64; ++i) {
          const int c = (i / 4) * 8 + c0 + (i & 1);
          const int r = r0 + ((i & 2) ? 8 : 0);
          if (c > r) s[i] = -INFINITY;
        }
      }
      softmax_tile(s, m, l, alpha, scale_log2);
#pragma unroll
      for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

      int accumulate = 0;
      for (int j = qt - 1; j >= 0; --j) {
        const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
        ++it;
        const uint32_t ks = it % kStages, kp = (it / kStages) & 1;
        k_full[ks].wait_parity(kp);
        bar_sync(my_bar, 256);
        pin(s);
        wgmma_fence();
        issue_qk(s, q_addr, smem_addr(smem + kOffK + ks * kTile));
        wgmma_commit();
        v_full[vs].wait_parity(vp);
        issue_pv(o, p, smem_addr(smem + kOffV + vs * kTile), accumulate);
        wgmma_commit();
        accumulate = 1;
        bar_arrive(other_bar, 256);
        wgmma_wait<1>();
        pin(s);
        release(k_empty[ks]);
        softmax_tile(s, m, l, alpha, scale_log2);
        wgmma_wait<0>();
        pin(o);
        release(v_empty[vs]);
#pragma unroll
        for (int i = 0; i < 48; ++i) o[i] *= alpha[(i >> 1) & 1];
#pragma unroll
        for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
      }
      release(q_empty[qb]);
      {
        const uint32_t vs = it % kStages, vp = (it / kStages) & 1;
        ++it;
        v_full[vs].wait_parity(vp);
        wgmma_fence();
        issue_pv(o, p, smem_addr(smem + kOffV + vs * kTile), accumulate);
        wgmma_commit();
        wgmma_wait<0>();
        pin(o);
        release(v_empty[vs]);
      }

      const int row0 = head * S + qt * kBM + cw * 64;
      float inv[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
        l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
        inv[r] = 1.f / l[r];
        if (lane % 4 == 0) lse[row0 + warp * 16 + r * 8 + lane / 4] = m[r] * scale + logf(l[r]);
      }
      if (tid == 0) cde::cp_async_bulk_wait_group_read<0>();
      bar_sync(wg_bar, 128);
      const int row = warp * 16 + ((lane / 8) & 1) * 8 + lane % 8;
      const uint32_t o_base = smem_addr(o_smem) + row * 64;
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        const int chunk = 2 * i + lane / 16;  // 8 columns each
        const uint32_t addr = o_base + (chunk / 4) * kOPanel + (((chunk % 4) ^ ((row >> 1) & 3)) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(addr),
                     "r"(pack(o[8 * i] * inv[0], o[8 * i + 1] * inv[0])),
                     "r"(pack(o[8 * i + 2] * inv[1], o[8 * i + 3] * inv[1])),
                     "r"(pack(o[8 * i + 4] * inv[0], o[8 * i + 5] * inv[0])),
                     "r"(pack(o[8 * i + 6] * inv[1], o[8 * i + 7] * inv[1]))
                     : "memory");
      }
      cde::fence_proxy_async_shared_cta();
      bar_sync(wg_bar, 128);
      if (tid == 0) {
        cde::cp_async_bulk_tensor_3d_shared_to_global(&map_o, 0, row0, 0, o_smem);
        cde::cp_async_bulk_commit_group();
      }
    }
    if (cw == 0) bar_sync(my_bar, 256);
    if (tid == 0) cde::cp_async_bulk_wait_group_read<0>();
  }
}

// [rows][96] seen as (column in panel, row, panel): one box brings a whole tile, panel by panel.
void encode(CUtensorMap* map, void* base, uint64_t rows, uint32_t box_rows) {
  const cuuint64_t dims[3] = {32, rows, 3};
  const cuuint64_t strides[2] = {kD * 2, 64};
  const cuuint32_t box[3] = {32, box_rows, 3};
  const cuuint32_t elem[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed: " << static_cast<int>(r);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 96]";
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (S % kBM != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128";
  if (heads == 0 || S == 0) return;
  const uint64_t rows = static_cast<uint64_t>(heads * S);
  CUtensorMap map_q, map_k, map_v, map_o;
  encode(&map_q, Q.data_ptr(), rows, kBM);
  encode(&map_k, K.data_ptr(), rows, kBN);
  encode(&map_v, V.data_ptr(), rows, kBN);
  encode(&map_o, O.data_ptr(), rows, 64);

  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  void* counter = nullptr;
  check(cudaGetSymbolAddress(&counter, g_next_tile), "cudaGetSymbolAddress");
  check(cudaMemsetAsync(counter, 0, sizeof(unsigned int), stream), "cudaMemsetAsync");

  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "device attribute");
  const int64_t n_tiles = heads * (S / kBM);
  const int grid = static_cast<int>(n_tiles < sms ? n_tiles : sms);
  check(cudaFuncSetAttribute(mha_causal, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kSmem)),
        "shared memory");
  const float scale = 1.0f / sqrtf(static_cast<float>(kD));
  mha_causal<<<grid, kThreads, kSmem, stream>>>(map_q, map_k, map_v, map_o, static_cast<float*>(LSE.data_ptr()),
                                                static_cast<int>(S), static_cast<int>(heads), scale,
                                                scale * 1.4426950408889634f);
  check(cudaGetLastError(), "launching mha_causal");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
