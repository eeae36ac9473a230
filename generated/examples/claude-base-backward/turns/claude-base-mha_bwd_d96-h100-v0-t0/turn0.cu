#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 96;
constexpr int kBoxes = 3;         // of 32 elements, 64 bytes
constexpr int kOwnRows = 128;
constexpr int kTileRows = 64;
constexpr int kStages = 5;
constexpr uint32_t kOwnBox = kOwnRows * 64;
constexpr uint32_t kTileBox = kTileRows * 64;
constexpr uint32_t kOwnBytes = kBoxes * kOwnBox;    // 24 KB
constexpr uint32_t kTileBytes = kBoxes * kTileBox;  // 12 KB
constexpr uint32_t kRing = 2 * kOwnBytes;
constexpr uint32_t kTerms = kRing + kStages * 2 * kTileBytes;
constexpr uint32_t kBars = kTerms + kStages * kTileRows * 8;
constexpr uint32_t kSmem = kBars + 128 + 1024;
constexpr float kLog2e = 1.4426950408889634f;

__device__ __forceinline__ uint32_t u32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void bar_init(uint32_t b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n));
}
__device__ __forceinline__ void bar_arrive(uint32_t b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void bar_expect(uint32_t b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t b, uint32_t parity) {
  asm volatile(
      "{\n"
      "  .reg .pred ready;\n"
      "loop_%=:\n"
      "  mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 ready, [%0], %1;\n"
      "  @!ready bra loop_%=;\n"
      "}\n" ::"r"(b),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void load_box(uint32_t dst, const CUtensorMap* m, uint32_t bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(dst),
      "l"(m), "r"(bar), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void load_bytes(uint32_t dst, const void* src, uint32_t n, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
               "l"(src), "r"(n), "r"(bar)
               : "memory");
}

// 64-byte swizzle (layout type 2): eight rows of 64 bytes are one atom of 512 bytes.
__device__ __forceinline__ uint64_t desc64(uint32_t addr, uint32_t leading) {
  return ((uint64_t)2 << 62) | ((uint64_t)(512 >> 4) << 32) | ((uint64_t)(leading >> 4) << 16) |
         (uint64_t)((addr & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define D8(d, i) "+f"(d[i]), "+f"(d[i+1]), "+f"(d[i+2]), "+f"(d[i+3]), "+f"(d[i+4]), "+f"(d[i+5]), "+f"(d[i+6]), "+f"(d[i+7])

// 64 x 64: scores and dP, both operands K-major in shared memory.
__device__ __forceinline__ void mma_scores(float (&d)[32], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24)
      : "l"(a), "l"(b), "r"(acc));
}

// 64 x 96: gradients, A in registers, B MN-major.
__device__ __forceinline__ void mma_grad(float (&d)[48], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
      : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24), D8(d, 32), D8(d, 40)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf16_pair(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

__device__ __forceinline__ void own_times_tile(float (&x)[32], uint32_t own, uint32_t tile) {
#pragma unroll
  for (int k = 0; k < kD / 16; ++k)
    mma_scores(x, desc64(own + (k / 2) * kOwnBox + (k % 2) * 32, 16), desc64(tile + (k / 2) * kTileBox + (k % 2) * 32, 16),
               k != 0);
}
__device__ __forceinline__ void add_product(float (&acc)[48], const uint32_t (&a)[16], uint32_t tile) {
#pragma unroll
  for (int k = 0; k < kTileRows / 16; ++k)
    mma_grad(acc, a[4 * k], a[4 * k + 1], a[4 * k + 2], a[4 * k + 3], desc64(tile + k * 1024, kTileBox));
}
__device__ __forceinline__ void pack16(uint32_t (&out)[16], const float (&x)[32]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) out[i] = bf16_pair(x[2 * i], x[2 * i + 1]);
}
__device__ __forceinline__ void write_rows(__nv_bfloat16* out, int64_t row, int col, const float (&acc)[48], float scale) {
#pragma unroll
  for (int j = 0; j < 12; ++j) {
    *(uint32_t*)(out + row * kD + 8 * j + col) = bf16_pair(acc[4 * j] * scale, acc[4 * j + 1] * scale);
    *(uint32_t*)(out + (row + 8) * kD + 8 * j + col) = bf16_pair(acc[4 * j + 2] * scale, acc[4 * j + 3] * scale);
  }
}

// kKeys: the block owns keys (own0 = K, own1 = V, tiles Q and dO; out0 = dK, out1 = dV).
// Otherwise it owns queries (own0 = Q, own1 = dO, tiles K and V; out0 = dQ).
template <bool kKeys>
__global__ void __launch_bounds__(384, 1)
    half_backward(const __grid_constant__ CUtensorMap own0, const __grid_constant__ CUtensorMap own1,
                  const __grid_constant__ CUtensorMap tile0, const __grid_constant__ CUtensorMap tile1,
                  const float2* terms, __nv_bfloat16* out0, __nv_bfloat16* out1, int seq, float scale) {
  extern __shared__ char dynamic[];
  const uint32_t smem = (u32(dynamic) + 1023u) & ~1023u;
  const char* smem_ptr = dynamic + (smem - u32(dynamic));
  const uint32_t bar_own = smem + kBars, bar_full = bar_own + 8, bar_empty = bar_full + 8 * kStages;
  const int tiles = seq / kTileRows;
  const int head = blockIdx.y * seq;
  const int row0 = head + blockIdx.x * kOwnRows;

  if (threadIdx.x == 0) {
    bar_init(bar_own, 1);
    for (int s = 0; s < kStages; ++s) {
      bar_init(bar_full + 8 * s, 1);
      bar_init(bar_empty + 8 * s, 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const int wg = threadIdx.x / 128;
  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 256) {
      bar_expect(bar_own, 2 * kOwnBytes);
      for (int b = 0; b < kBoxes; ++b) {
        load_box(smem + b * kOwnBox, &own0, bar_own, 32 * b, row0);
        load_box(smem + kOwnBytes + b * kOwnBox, &own1, bar_own, 32 * b, row0);
      }
      for (int i = 0; i < tiles; ++i) {
        const int s = i % kStages;
        const uint32_t at = smem + kRing + s * 2 * kTileBytes, full = bar_full + 8 * s;
        bar_wait(bar_empty + 8 * s, ((i / kStages) & 1) ^ 1);
        bar_expect(full, 2 * kTileBytes + (kKeys ? kTileRows * 8 : 0));
        for (int b = 0; b < kBoxes; ++b) {
          load_box(at + b * kTileBox, &tile0, full, 32 * b, head + i * kTileRows);
          load_box(at + kTileBytes + b * kTileBox, &tile1, full, 32 * b, head + i * kTileRows);
        }
        if (kKeys) load_bytes(smem + kTerms + s * kTileRows * 8, terms + head + i * kTileRows, kTileRows * 8, full);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int lane = threadIdx.x % 32;
    const int row = wg * 64 + (threadIdx.x % 128) / 32 * 16 + lane / 4;
    const int col = 2 * (lane % 4);
    const float c = scale * kLog2e;
    float2 mine0, mine1;
    if (!kKeys) {
      mine0 = terms[row0 + row];
      mine1 = terms[row0 + row + 8];
    }
    float g0[48] = {}, g1[48] = {};
    bar_wait(bar_own, 0);
#pragma unroll 1
    for (int i = 0; i < tiles; ++i) {
      const int s = i % kStages;
      const uint32_t t0 = smem + kRing + s * 2 * kTileBytes, t1 = t0 + kTileBytes;
      bar_wait(bar_full + 8 * s, (i / kStages) & 1);
      float p[32], ds[32];
      fence();
      own_times_tile(p, smem + wg * 64 * 64, t0);
      commit();
      own_times_tile(ds, smem + kOwnBytes + wg * 64 * 64, t1);
      commit();
      wait<1>();
      const float4* columns = reinterpret_cast<const float4*>(smem_ptr + kTerms + s * kTileRows * 8);
      uint32_t frag[16];
      if constexpr (kKeys) {
        // Terms are (L log2(e), delta) of a query; a thread has two queries next to each other in each group of 8.
        float4 q[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          q[j] = columns[4 * j + lane % 4];
          p[4 * j] = ex2(p[4 * j] * c - q[j].x);
          p[4 * j + 1] = ex2(p[4 * j + 1] * c - q[j].z);
          p[4 * j + 2] = ex2(p[4 * j + 2] * c - q[j].x);
          p[4 * j + 3] = ex2(p[4 * j + 3] * c - q[j].z);
        }
        pack16(frag, p);
        wait<0>();
        fence();
        add_product(g1, frag, t1);
        commit();
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          ds[4 * j] = p[4 * j] * (ds[4 * j] - q[j].y);
          ds[4 * j + 1] = p[4 * j + 1] * (ds[4 * j + 1] - q[j].w);
          ds[4 * j + 2] = p[4 * j + 2] * (ds[4 * j + 2] - q[j].y);
          ds[4 * j + 3] = p[4 * j + 3] * (ds[4 * j + 3] - q[j].w);
        }
      } else {
#pragma unroll
        for (int j = 0; j < 32; ++j) p[j] = ex2(p[j] * c - (j & 2 ? mine1.x : mine0.x));
        wait<0>();
#pragma unroll
        for (int j = 0; j < 32; ++j) ds[j] = p[j] * (ds[j] - (j & 2 ? mine1.y : mine0.y));
      }
      uint32_t ds_frag[16];
      pack16(ds_frag, ds);
      fence();
      add_product(g0, ds_frag, t0);
      commit();
      wait<0>();
      if (threadIdx.x % 128 == 0) bar_arrive(bar_empty + 8 * s);
    }
    write_rows(out0, row0 + row, col, g0, scale);
    if constexpr (kKeys) write_rows(out1, row0 + row, col, g1, 1.f);
  }
}

// (L log2(e), delta) of each row; a warp a row, 3 elements a lane.
__global__ void __launch_bounds__(256) row_terms(const __nv_bfloat16* o, const __nv_bfloat16* dout, const float* lse,
                                                 float2* terms, int64_t rows) {
  const int64_t row = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 3; ++i)
    sum += __bfloat162float(o[row * kD + i * 32 + lane]) * __bfloat162float(dout[row * kD + i * 32 + lane]);
#pragma unroll
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) terms[row] = make_float2(lse[row] * kLog2e, sum);
}

CUtensorMap make_map(tvm::ffi::TensorView x, uint32_t rows_of_box) {
  alignas(64) CUtensorMap map;
  cuuint64_t dims[2] = {kD, (cuuint64_t)(x.size(0) * x.size(1) * x.size(2))};
  cuuint64_t strides[1] = {kD * 2};
  cuuint32_t box[2] = {32, rows_of_box};
  cuuint32_t ones[2] = {1, 1};
  CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, x.data_ptr(), dims, strides, box, ones,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return map;
}

void check(cudaError_t e) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2), rows = heads * seq;
  if (seq % kOwnRows) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kOwnRows;
  const cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id);
  float2* terms;
  check(cudaMallocAsync(&terms, rows * sizeof(float2), stream));
  row_terms<<<(unsigned)((rows + 7) / 8), 256, 0, stream>>>((const __nv_bfloat16*)O.data_ptr(),
                                                          (const __nv_bfloat16*)dO.data_ptr(),
                                                          (const float*)L.data_ptr(), terms, rows);
  check(cudaGetLastError());
  const float scale = 0.10206207261596577f;  // 1 / sqrt(96)
  const dim3 grid((unsigned)(seq / kOwnRows), (unsigned)heads);
  check(cudaFuncSetAttribute(half_backward<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  check(cudaFuncSetAttribute(half_backward<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  half_backward<true><<<grid, 384, kSmem, stream>>>(make_map(K, kOwnRows), make_map(V, kOwnRows), make_map(Q, kTileRows),
                                                    make_map(dO, kTileRows), terms, (__nv_bfloat16*)dK.data_ptr(),
                                                    (__nv_bfloat16*)dV.data_ptr(), (int)seq, scale);
  check(cudaGetLastError());
  half_backward<false><<<grid, 384, kSmem, stream>>>(make_map(Q, kOwnRows), make_map(dO, kOwnRows),
                                                     make_map(K, kTileRows), make_map(V, kTileRows), terms,
                                                     (__nv_bfloat16*)dQ.data_ptr(), nullptr, (int)seq, scale);
  check(cudaGetLastError());
  check(cudaFreeAsync(terms, stream));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
