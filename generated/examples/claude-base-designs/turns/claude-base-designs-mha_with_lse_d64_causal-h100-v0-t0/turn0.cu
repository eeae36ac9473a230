// Causal attention forward with LSE, D = 64. CTA tile: 128 queries, key tiles of 128, from the diagonal down.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>
#include <utility>

namespace {

namespace cde = cuda::device::experimental;
using barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kD = 64;
constexpr int kBM = 128;
constexpr int kBN = 128;
constexpr int kStages = 4;
constexpr int kThreads = 384;
constexpr int kHeadGroup = 32;                   // heads walked together: 32 MB of K and V at S = 4096
constexpr uint32_t kQBytes = kBM * kD * 2;       // 16 KB
constexpr uint32_t kTileBytes = kBN * kD * 2;    // 16 KB
constexpr int kSmemBytes = 2 * kQBytes + 2 * kStages * kTileBytes + 1024;
constexpr float kScale = 0.125f;
constexpr float kScaleLog2 = 0.125f * 1.4426950408889634f;
constexpr int kWarps = 8;  // consumer warps

__device__ unsigned int g_counter;  // set to zero in front of each launch

struct Barriers {
  barrier q_full, q_empty;
  barrier k_full[kStages], k_empty[kStages];
  barrier v_full[kStages], v_empty[kStages];
  barrier sched_full[2], sched_empty[2];
};

__device__ __forceinline__ uint32_t smem_u32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ uint64_t make_desc(uint32_t addr) {  // 128 byte swizzle
  return static_cast<uint64_t>((addr & 0x3FFFF) >> 4) | (static_cast<uint64_t>(1) << 16) |
         (static_cast<uint64_t>(1024 >> 4) << 32) | (static_cast<uint64_t>(1) << 62);
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

__device__ __forceinline__ void wgmma_qk(float (&d)[64], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
      : "l"(da), "l"(db), "r"(scale_d));
}

__device__ __forceinline__ void wgmma_pv(float (&d)[32], const uint32_t* a, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
      "}\n"
      : F16(d, 0), F16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(scale_d));
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

// Work item t -> query tile and head: groups of heads, long tiles first, heads inside.
__device__ __forceinline__ void decode(int t, int tiles, int heads, int& qt, int& bh) {
  const int per_group = kHeadGroup * tiles;
  const int group = t / per_group;
  const int rem = t - group * per_group;
  const int here = min(kHeadGroup, heads - group * kHeadGroup);
  qt = tiles - 1 - rem / here;
  bh = group * kHeadGroup + rem % here;
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
    l[r] *= alpha[r];
  }
#pragma unroll
  for (int g = 0; g < 16; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float y0 = ex2(fmaf(s[4 * g + 2 * r], kScaleLog2, neg[r]));
      const float y1 = ex2(fmaf(s[4 * g + 2 * r + 1], kScaleLog2, neg[r]));
      s[4 * g + 2 * r] = y0;
      s[4 * g + 2 * r + 1] = y1;
      l[r] += y0 + y1;
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_causal(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                     const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse,
                     int S, int heads) {
  extern __shared__ uint8_t smem_raw[];
  __shared__ alignas(16) unsigned char bar_mem[sizeof(Barriers)];
  __shared__ int sched[2];
  Barriers& b = *reinterpret_cast<Barriers*>(bar_mem);
  uint8_t* smem = smem_raw + ((1024u - (smem_u32(smem_raw) & 1023u)) & 1023u);
  uint8_t* smem_q = smem;
  uint8_t* smem_o = smem_q + kQBytes;
  uint8_t* smem_k = smem_o + kQBytes;
  uint8_t* smem_v = smem_k + kStages * kTileBytes;

  const int wg = threadIdx.x / 128;
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    init(&b.q_full, 1);
    init(&b.q_empty, kWarps);
    for (int s = 0; s < kStages; ++s) {
      init(&b.k_full[s], 1);
      init(&b.v_full[s], 1);
      init(&b.k_empty[s], kWarps);
      init(&b.v_empty[s], kWarps);
    }
    for (int s = 0; s < 2; ++s) {
      init(&b.sched_full[s], 1);
      init(&b.sched_empty[s], kWarps);
    }
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  const int tiles = S / kBM;
  const int total = tiles * heads;

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      uint32_t kv = 0;
      for (uint32_t it = 0;; ++it) {
        const uint32_t slot = it & 1;
        b.sched_empty[slot].wait_parity(((it >> 1) & 1) ^ 1);
        const int t = static_cast<int>(atomicAdd(&g_counter, 1u));
        sched[slot] = t;
        (void)b.sched_full[slot].arrive();
        if (t >= total) break;
        int qt, bh;
        decode(t, tiles, heads, qt, bh);
        b.q_empty.wait_parity((it & 1) ^ 1);
        cde::cp_async_bulk_tensor_3d_global_to_shared(smem_q, &map_q, 0, qt * kBM, bh, b.q_full);
        (void)cuda::device::barrier_arrive_tx(b.q_full, 1, kQBytes);
        for (int j = qt; j >= 0; --j, ++kv) {
          const uint32_t s = kv % kStages;
          const bool free_parity = ((kv / kStages) & 1) ^ 1;
          b.k_empty[s].wait_parity(free_parity);
          cde::cp_async_bulk_tensor_3d_global_to_shared(smem_k + s * kTileBytes, &map_k, 0, j * kBN, bh, b.k_full[s]);
          (void)cuda::device::barrier_arrive_tx(b.k_full[s], 1, kTileBytes);
          b.v_empty[s].wait_parity(free_parity);
          cde::cp_async_bulk_tensor_3d_global_to_shared(smem_v + s * kTileBytes, &map_v, 0, j * kBN, bh, b.v_full[s]);
          (void)cuda::device::barrier_arrive_tx(b.v_full[s], 1, kTileBytes);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int cw = wg - 1;
    const int warp = (threadIdx.x / 32) & 3;
    const int local_row = cw * 64 + warp * 16 + lane / 4;  // and + 8
    const uint64_t desc_q = make_desc(smem_u32(smem_q) + cw * 64 * 128);
    uint8_t* out = smem_o + cw * 64 * 128;
    const uint32_t out_addr = smem_u32(out);

    if (cw == 1) bar_arrive(1, 256);  // warpgroup 0 goes first

    uint32_t kv = 0;
    for (uint32_t it = 0;; ++it) {
      const uint32_t slot = it & 1;
      b.sched_full[slot].wait_parity((it >> 1) & 1);
      const int t = sched[slot];
      __syncwarp();
      if (lane == 0) (void)b.sched_empty[slot].arrive();
      if (t >= total) break;
      int qt, bh;
      decode(t, tiles, heads, qt, bh);

      float s[64];
      float o[32];
      uint32_t p[32];
      float m[2] = {-INFINITY, -INFINITY};
      float l[2] = {0.f, 0.f};
      float alpha[2];

      // The diagonal tile first: it is the only one with a mask, and gives every row a finite maximum.
      b.q_full.wait_parity(it & 1);
      uint32_t st = kv % kStages;
      b.k_full[st].wait_parity((kv / kStages) & 1);
      wgmma_fence();
      {
        const uint64_t dk = make_desc(smem_u32(smem_k) + st * kTileBytes);
#pragma unroll
        for (int k = 0; k < kD / 16; ++k) wgmma_qk(s, desc_q + 2 * k, dk + 2 * k, k != 0);
      }
      wgmma_commit();
      wgmma_wait<0>();
      pin(s);
      if (lane == 0) {
        (void)b.k_empty[st].arrive();
        if (qt == 0) (void)b.q_empty.arrive();
      }
#pragma unroll
      for (int g = 0; g < 16; ++g) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int col = 8 * g + 2 * (lane % 4) + (e & 1);
          if (col > local_row + 8 * (e >> 1)) s[4 * g + e] = -INFINITY;
        }
      }
      softmax_step(s, m, l, alpha);
#pragma unroll
      for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);

#pragma unroll 1
      for (int j = qt - 1; j >= 0; --j) {
        const uint32_t sv = kv % kStages;
        const bool v_parity = (kv / kStages) & 1;
        ++kv;
        st = kv % kStages;
        b.k_full[st].wait_parity((kv / kStages) & 1);
        b.v_full[sv].wait_parity(v_parity);
        bar_sync(1 + cw, 256);
        wgmma_fence();
        const uint64_t dk = make_desc(smem_u32(smem_k) + st * kTileBytes);
#pragma unroll
        for (int k = 0; k < kD / 16; ++k) wgmma_qk(s, desc_q + 2 * k, dk + 2 * k, k != 0);
        wgmma_commit();
        const uint64_t dv = make_desc(smem_u32(smem_v) + sv * kTileBytes);
        const int add = j != qt - 1;
#pragma unroll
        for (int k = 0; k < kBN / 16; ++k) wgmma_pv(o, p + 4 * k, dv + k * (2048 >> 4), add | (k != 0));
        wgmma_commit();
        bar_arrive(1 + (cw ^ 1), 256);
        wgmma_wait<1>();
        pin(s);
        if (lane == 0) {
          (void)b.k_empty[st].arrive();
          if (j == 0) (void)b.q_empty.arrive();
        }
        softmax_step(s, m, l, alpha);
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) (void)b.v_empty[sv].arrive();
#pragma unroll
        for (int g = 0; g < 8; ++g) {
          o[4 * g] *= alpha[0];
          o[4 * g + 1] *= alpha[0];
          o[4 * g + 2] *= alpha[1];
          o[4 * g + 3] *= alpha[1];
        }
#pragma unroll
        for (int i = 0; i < 32; ++i) p[i] = pack(s[2 * i], s[2 * i + 1]);
      }
      {
        const uint32_t sv = kv % kStages;
        b.v_full[sv].wait_parity((kv / kStages) & 1);
        wgmma_fence();
        const uint64_t dv = make_desc(smem_u32(smem_v) + sv * kTileBytes);
#pragma unroll
        for (int k = 0; k < kBN / 16; ++k) wgmma_pv(o, p + 4 * k, dv + k * (2048 >> 4), (qt != 0) | (k != 0));
        wgmma_commit();
        wgmma_wait<0>();
        pin(o);
        if (lane == 0) (void)b.v_empty[sv].arrive();
        ++kv;
      }

      // Epilogue
      float inv[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float sum = l[r];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        inv[r] = 1.f / sum;
        if (lane % 4 == 0)
          lse[static_cast<int64_t>(bh) * S + qt * kBM + local_row + 8 * r] = m[r] * kScale + __logf(sum);
      }
      if (threadIdx.x % 128 == 0) cde::cp_async_bulk_wait_group_read<0>();  // the staging of the tile before is read
      bar_sync(3 + cw, 128);
      const int st_row = warp * 16 + (lane & 7) + ((lane >> 3) & 1) * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int chunk = (2 * j + (lane >> 4)) ^ (st_row & 7);
        const float* v = o + 8 * j;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(out_addr + st_row * 128 +
                                                                                              chunk * 16),
                     "r"(pack(v[0] * inv[0], v[1] * inv[0])), "r"(pack(v[2] * inv[1], v[3] * inv[1])),
                     "r"(pack(v[4] * inv[0], v[5] * inv[0])), "r"(pack(v[6] * inv[1], v[7] * inv[1]))
                     : "memory");
      }
      cde::fence_proxy_async_shared_cta();
      bar_sync(3 + cw, 128);
      if (threadIdx.x % 128 == 0) {
        cde::cp_async_bulk_tensor_3d_shared_to_global(&map_o, 0, qt * kBM + cw * 64, bh, out);
        cde::cp_async_bulk_commit_group();
      }
    }
    if (cw == 0) bar_sync(1, 256);  // takes the last arrival of warpgroup 1
    if (threadIdx.x % 128 == 0) cde::cp_async_bulk_wait_group_read<0>();
  }
}

void encode(CUtensorMap* map, void* base, int64_t S, int64_t BH, uint32_t rows) {
  const cuuint64_t dims[3] = {kD, static_cast<cuuint64_t>(S), static_cast<cuuint64_t>(BH)};
  const cuuint64_t strides[2] = {kD * 2, static_cast<cuuint64_t>(S) * kD * 2};
  const cuuint32_t box[3] = {kD, rows, 1};
  const cuuint32_t elem[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, base, dims, strides, box, elem,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(error);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  if (Q.ndim() != 4 || Q.size(3) != kD) TVM_FFI_THROW(RuntimeError) << "expected Q[B, H, S, 64]";
  const int64_t bh = Q.size(0) * Q.size(1);
  const int64_t S = Q.size(2);
  if (bh == 0 || S == 0) return;
  if (S % kBM != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kBM;
  CUtensorMap map_q, map_k, map_v, map_o;
  encode(&map_q, Q.data_ptr(), S, bh, kBM);
  encode(&map_k, K.data_ptr(), S, bh, kBN);
  encode(&map_v, V.data_ptr(), S, bh, kBN);
  encode(&map_o, O.data_ptr(), S, bh, 64);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  int sms = 132;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "number of SMs");
  void* counter = nullptr;
  check(cudaGetSymbolAddress(&counter, g_counter), "counter");
  check(cudaMemsetAsync(counter, 0, sizeof(unsigned int), stream), "clearing the counter");
  check(cudaFuncSetAttribute(attention_causal, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes),
        "shared memory");
  attention_causal<<<sms, kThreads, kSmemBytes, stream>>>(map_q, map_k, map_v, map_o,
                                                         static_cast<float*>(LSE.data_ptr()), static_cast<int>(S),
                                                         static_cast<int>(bh));
  check(cudaGetLastError(), "launching attention");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
