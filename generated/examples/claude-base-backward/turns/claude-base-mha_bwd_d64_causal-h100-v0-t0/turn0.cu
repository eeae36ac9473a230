#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 64;
constexpr int TILE = 128;  // queries and keys of a tile
constexpr int STAGES = 2;
constexpr uint32_t TILE_BYTES = TILE * D * 2;  // 16 KB: rows of 128 bytes, one swizzle atom wide
constexpr float LOG2E = 1.44269504f;

// Offsets in shared memory.
constexpr uint32_t OFF_K = 0;
constexpr uint32_t OFF_V = OFF_K + TILE_BYTES;
constexpr uint32_t OFF_Q = OFF_V + TILE_BYTES;
constexpr uint32_t OFF_DO = OFF_Q + STAGES * TILE_BYTES;
constexpr uint32_t OFF_DS = OFF_DO + STAGES * TILE_BYTES;  // 2 buffers x 2 halves of the queries x [128 keys][64 queries]
constexpr uint32_t DS_BYTES = TILE * TILE * 2;
constexpr uint32_t OFF_LSE = OFF_DS + 2 * DS_BYTES;
constexpr uint32_t OFF_DELTA = OFF_LSE + STAGES * TILE * 4;
constexpr uint32_t OFF_BAR = OFF_DELTA + STAGES * TILE * 4;
constexpr uint32_t OFF_DQ = (OFF_BAR + 64 + 1023) / 1024 * 1024;  // FP32, 2 halves of D x [128 queries][32]
constexpr uint32_t SMEM_BYTES = OFF_DQ + TILE * D * 4 + 1024;

__device__ inline uint32_t smem_addr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void mbar_init(uint32_t bar, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(bar), "r"(n));
}
__device__ inline void mbar_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ inline void mbar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(bar) : "memory");
}
__device__ inline void mbar_wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ inline void tma_tile(uint32_t dst, const CUtensorMap& map, uint32_t bar, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(dst),
      "l"(&map), "r"(0), "r"(row), "r"(bar)
      : "memory");
}
__device__ inline void tma_rows(uint32_t dst, const float* src, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(dst),
               "l"(src), "r"(TILE * 4), "r"(bar)
               : "memory");
}
__device__ inline void tma_reduce(const CUtensorMap& map, uint32_t src, int col, int row) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];\n" ::"l"(&map), "r"(col),
               "r"(row), "r"(src)
               : "memory");
}
__device__ inline uint64_t desc128(uint32_t addr) {
  // leading 64-element offset unused (one atom wide), stride 1024 bytes, 128-byte swizzle
  return (1ull << 62) | (64ull << 32) | (1ull << 16) | ((addr & 0x3FFFF) >> 4);
}

#define A4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define A16(x, i) A4(x, i), A4(x, i + 4), A4(x, i + 8), A4(x, i + 12)
#define N32                                                                                               \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, " \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define N64                                                                                                      \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "        \
  "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "    \
  "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// [64 x 128] (+)= A B^T, both K-major.
__device__ inline void mma_n128(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " N64 ", %64, %65, p, 1, 1, 0, 0;\n}\n"
      : A16(d, 0), A16(d, 16), A16(d, 32), A16(d, 48)
      : "l"(a), "l"(b), "r"(accumulate));
}
// [64 x 64] (+)= A^T B: both with the outer axis contiguous.
__device__ inline void mma_n64_tt(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " N32 ", %32, %33, p, 1, 1, 1, 1;\n}\n"
      : A16(d, 0), A16(d, 16)
      : "l"(a), "l"(b), "r"(accumulate));
}
// [64 x 64] += registers B.
__device__ inline void mma_n64_rs(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " N32 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
      : A16(d, 0), A16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void mma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ inline void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ inline void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}
__device__ inline void sync_consumers() { asm volatile("bar.sync 1, 256;\n" ::: "memory"); }
__device__ inline float ex2(float x) {
  asm("ex2.approx.ftz.f32 %0, %0;\n" : "+f"(x));
  return x;
}
__device__ inline uint32_t bf2(float lo, float hi) {
  __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<uint32_t*>(&v);
}
__device__ inline void stsm(uint32_t addr, const uint32_t* r) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(addr), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

__global__ void __launch_bounds__(256) before(const uint4* o, const uint4* dout, float* delta, float4* dq, int rows) {
  const int row = blockIdx.x * 32 + threadIdx.x / 8, part = threadIdx.x % 8;
  float sum = 0.f;
  if (row < rows) {
    const uint4 a = o[row * 8ll + part], b = dout[row * 8ll + part];
    const __nv_bfloat162 *x = reinterpret_cast<const __nv_bfloat162*>(&a), *y = reinterpret_cast<const __nv_bfloat162*>(&b);
    for (int i = 0; i < 4; ++i) {
      const float2 f = __bfloat1622float2(x[i]), g = __bfloat1622float2(y[i]);
      sum += f.x * g.x + f.y * g.y;
    }
    dq[row * 16ll + part] = dq[row * 16ll + part + 8] = make_float4(0.f, 0.f, 0.f, 0.f);
  }
  for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (row < rows && part == 0) delta[row] = sum;
}

__global__ void __launch_bounds__(256) after(const float4* acc, uint2* dq, float scale, int64_t n) {
  const int64_t i = blockIdx.x * 256ll + threadIdx.x;
  if (i >= n) return;
  const float4 v = acc[i];
  dq[i] = uint2{bf2(v.x * scale, v.y * scale), bf2(v.z * scale, v.w * scale)};
}

__global__ void __launch_bounds__(384, 1)
    mha_backward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                 const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_do,
                 const __grid_constant__ CUtensorMap map_dq, const float* lse, const float* delta, __nv_bfloat16* dk_out, __nv_bfloat16* dv_out,
                 int seq, float scale) {
  extern __shared__ __align__(1024) unsigned char smem_raw[];
  const uint32_t raw = smem_addr(smem_raw);
  const uint32_t smem = (raw + 1023) / 1024 * 1024;
  const unsigned char* generic = smem_raw + (smem - raw);
  const uint32_t bar_kv = smem + OFF_BAR, bar_full = bar_kv + 8, bar_empty = bar_full + 8 * STAGES;
  const int head_row = blockIdx.y * seq;
  const int key0 = blockIdx.x * TILE;
  const int first_tile = blockIdx.x;
  const int tiles = seq / TILE - first_tile;

  if (threadIdx.x == 0) {
    mbar_init(bar_kv, 1);
    for (int s = 0; s < STAGES; ++s) {
      mbar_init(bar_full + 8 * s, 1);
      mbar_init(bar_empty + 8 * s, 256);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x >= 256) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;\n");
    if (threadIdx.x == 256) {
      mbar_expect(bar_kv, 2 * TILE_BYTES);
      tma_tile(smem + OFF_K, map_k, bar_kv, head_row + key0);
      tma_tile(smem + OFF_V, map_v, bar_kv, head_row + key0);
      for (int i = 0; i < tiles; ++i) {
        const int s = i % STAGES, row = head_row + (first_tile + i) * TILE;
        mbar_wait(bar_empty + 8 * s, (i / STAGES + 1) & 1);
        mbar_expect(bar_full + 8 * s, 2 * TILE_BYTES + 2 * TILE * 4);
        tma_tile(smem + OFF_Q + s * TILE_BYTES, map_q, bar_full + 8 * s, row);
        tma_rows(smem + OFF_LSE + s * TILE * 4, lse + row, bar_full + 8 * s);
        tma_tile(smem + OFF_DO + s * TILE_BYTES, map_do, bar_full + 8 * s, row);
        tma_rows(smem + OFF_DELTA + s * TILE * 4, delta + row, bar_full + 8 * s);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
  const int wg = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int g = lane / 4, t2 = lane % 4 * 2;
  const float scale2 = scale * LOG2E;
  const int st_row = wg * 64 + warp * 16 + lane % 16;
  const int key = key0 + wg * 64 + warp * 16 + g;

  float dk[32] = {0.f}, dv[32] = {0.f};
  mbar_wait(bar_kv, 0);
  for (int i = 0; i < tiles; ++i) {
    const int s = i % STAGES;
    const uint32_t q = smem + OFF_Q + s * TILE_BYTES, dout = smem + OFF_DO + s * TILE_BYTES;
    const float* row_lse = reinterpret_cast<const float*>(generic + OFF_LSE) + s * TILE;
    const float* row_delta = reinterpret_cast<const float*>(generic + OFF_DELTA) + s * TILE;
    mbar_wait(bar_full + 8 * s, i / STAGES & 1);

    float p[64], dp[64];
    mma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) mma_n128(p, desc128(smem + OFF_K + wg * 8192 + k * 32), desc128(q + k * 32), k);
    mma_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) mma_n128(dp, desc128(smem + OFF_V + wg * 8192 + k * 32), desc128(dout + k * 32), k);
    mma_commit();
    mma_wait<1>();

    uint32_t frag[32];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(row_lse + 8 * j + t2);
      p[4 * j] = ex2(p[4 * j] * scale2 - l.x * LOG2E);
      p[4 * j + 1] = ex2(p[4 * j + 1] * scale2 - l.y * LOG2E);
      p[4 * j + 2] = ex2(p[4 * j + 2] * scale2 - l.x * LOG2E);
      p[4 * j + 3] = ex2(p[4 * j + 3] * scale2 - l.y * LOG2E);
      if (i == 0) {  // the tile on the diagonal
        const int query = key0 + 8 * j + t2;
        if (query < key) p[4 * j] = 0.f;
        if (query + 1 < key) p[4 * j + 1] = 0.f;
        if (query < key + 8) p[4 * j + 2] = 0.f;
        if (query + 1 < key + 8) p[4 * j + 3] = 0.f;
      }
      frag[2 * j] = bf2(p[4 * j], p[4 * j + 1]);
      frag[2 * j + 1] = bf2(p[4 * j + 2], p[4 * j + 3]);
    }
    mma_wait<0>();
    mma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k) mma_n64_rs(dv, frag + 4 * k, desc128(dout + k * 2048));
    mma_commit();

#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(row_delta + 8 * j + t2);
      dp[4 * j] = p[4 * j] * (dp[4 * j] - d.x);
      dp[4 * j + 1] = p[4 * j + 1] * (dp[4 * j + 1] - d.y);
      dp[4 * j + 2] = p[4 * j + 2] * (dp[4 * j + 2] - d.x);
      dp[4 * j + 3] = p[4 * j + 3] * (dp[4 * j + 3] - d.y);
    }
    mma_wait<0>();  // frag is read by the products of dV
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      frag[2 * j] = bf2(dp[4 * j], dp[4 * j + 1]);
      frag[2 * j + 1] = bf2(dp[4 * j + 2], dp[4 * j + 3]);
    }
    const uint32_t ds = smem + OFF_DS + (i & 1) * DS_BYTES;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const uint32_t chunk = (k % 4 * 2 + lane / 16) ^ (st_row & 7);
      stsm(ds + (k / 4) * (DS_BYTES / 2) + st_row * 128 + chunk * 16, frag + 4 * k);
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    sync_consumers();

    float dq[32];
    mma_fence();
#pragma unroll
    for (int k = 0; k < 8; ++k)
      mma_n64_tt(dq, desc128(ds + wg * (DS_BYTES / 2) + k * 2048), desc128(smem + OFF_K + k * 2048), k);
    mma_commit();
#pragma unroll
    for (int k = 0; k < 8; ++k) mma_n64_rs(dk, frag + 4 * k, desc128(q + k * 2048));
    mma_commit();
    mma_wait<1>();

    // Stage this warpgroup's 64 queries, in boxes of 64 rows by 32 columns with a 128-byte swizzle.
    if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 0;\n" ::: "memory");
    asm volatile("bar.sync %0, 128;\n" ::"r"(2 + wg) : "memory");
    unsigned char* stage = smem_raw + (smem - raw) + OFF_DQ + wg * 16384;
    const int r = warp * 16 + g;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      unsigned char* box = stage + (j / 4) * 8192;
      const int byte = (j % 4) * 32 + t2 * 4;
      const int at = ((byte / 16) ^ (r & 7)) * 16 + byte % 16;
      *reinterpret_cast<float2*>(box + r * 128 + at) = make_float2(dq[4 * j], dq[4 * j + 1]);
      *reinterpret_cast<float2*>(box + (r + 8) * 128 + at) = make_float2(dq[4 * j + 2], dq[4 * j + 3]);
    }
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
    asm volatile("bar.sync %0, 128;\n" ::"r"(2 + wg) : "memory");
    if (threadIdx.x % 128 == 0) {
      const int row = head_row + (first_tile + i) * TILE + wg * 64;
      tma_reduce(map_dq, smem + OFF_DQ + wg * 16384, 0, row);
      tma_reduce(map_dq, smem + OFF_DQ + wg * 16384 + 8192, 32, row);
      asm volatile("cp.async.bulk.commit_group;\n" ::: "memory");
    }
    mma_wait<0>();
    mbar_arrive(bar_empty + 8 * s);
  }

  if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;\n" ::: "memory");
  uint32_t* dk_row = reinterpret_cast<uint32_t*>(dk_out + (int64_t)(head_row + key) * D + t2);
  uint32_t* dv_row = reinterpret_cast<uint32_t*>(dv_out + (int64_t)(head_row + key) * D + t2);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    dk_row[4 * j] = bf2(dk[4 * j] * scale, dk[4 * j + 1] * scale);
    dk_row[4 * j + 4 * D] = bf2(dk[4 * j + 2] * scale, dk[4 * j + 3] * scale);
    dv_row[4 * j] = bf2(dv[4 * j], dv[4 * j + 1]);
    dv_row[4 * j + 4 * D] = bf2(dv[4 * j + 2], dv[4 * j + 3]);
  }
}

CUtensorMap tile_map(void* data, int rows, CUtensorMapDataType type, int element, uint32_t box_rows) {
  CUtensorMap map{};
  const cuuint64_t size[2] = {D, (cuuint64_t)rows};
  const cuuint64_t pitch[1] = {D * element};
  const cuuint32_t box[2] = {128 / element, box_rows};
  const cuuint32_t step[2] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, type, 2, data, size, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    TVM_FFI_THROW(RuntimeError) << "cannot encode a tensor map";
  return map;
}

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  const int heads = static_cast<int>(Q.size(0) * Q.size(1)), seq = static_cast<int>(Q.size(2));
  const int rows = heads * seq;
  if (seq % TILE != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << TILE;
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  float* scratch = nullptr;
  check(cudaMallocAsync(&scratch, (int64_t)rows * (D + 1) * 4, stream), "cudaMallocAsync");
  float* delta = scratch + (int64_t)rows * D;
  const float scale = 0.125f;
  constexpr auto kBf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;

  before<<<(rows + 31) / 32, 256, 0, stream>>>(static_cast<const uint4*>(O.data_ptr()),
                                               static_cast<const uint4*>(dO.data_ptr()), delta,
                                               reinterpret_cast<float4*>(scratch), rows);
  check(cudaGetLastError(), "before");
  check(cudaFuncSetAttribute(mha_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES), "attribute");
  mha_backward<<<dim3(seq / TILE, heads), 384, SMEM_BYTES, stream>>>(
      tile_map(Q.data_ptr(), rows, kBf16, 2, TILE), tile_map(K.data_ptr(), rows, kBf16, 2, TILE),
      tile_map(V.data_ptr(), rows, kBf16, 2, TILE), tile_map(dO.data_ptr(), rows, kBf16, 2, TILE),
      tile_map(scratch, rows, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 64), static_cast<const float*>(L.data_ptr()), delta,
      static_cast<__nv_bfloat16*>(dK.data_ptr()), static_cast<__nv_bfloat16*>(dV.data_ptr()), seq, scale);
  check(cudaGetLastError(), "mha_backward");
  const int64_t n = (int64_t)rows * D / 4;
  after<<<static_cast<unsigned>((n + 255) / 256), 256, 0, stream>>>(reinterpret_cast<const float4*>(scratch),
                                                                  static_cast<uint2*>(dQ.data_ptr()), scale, n);
  check(cudaGetLastError(), "after");
  check(cudaFreeAsync(scratch, stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
