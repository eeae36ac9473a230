#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kHeadDim = 128;
constexpr int kOwn = 128;     // rows that a block owns
constexpr int kTile = 64;     // rows of a streamed tile
constexpr int kStages = 4;
constexpr int kConsumers = 2;
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr uint32_t kOwnBytes = kOwn * kHeadDim * 2;
constexpr uint32_t kTileBytes = kTile * kHeadDim * 2;
constexpr uint32_t kStageBytes = 2 * kTileBytes + 2 * kTile * 4;  // two tiles, then L and delta
constexpr uint32_t kStagePitch = 2 * kTileBytes;
constexpr uint32_t kTermsAt = 2 * kOwnBytes + kStages * kStagePitch;
constexpr uint32_t kBarsAt = kTermsAt + kStages * 2 * kTile * 4;
constexpr uint32_t kSmemBytes = kBarsAt + 8 * (1 + 2 * kStages) + 1024;

struct Params {
  CUtensorMap q_own, k_own, v_own, do_own;      // boxes of 128 rows
  CUtensorMap q_tile, k_tile, v_tile, do_tile;  // boxes of 64 rows
  const float* lse;
  const float* delta;
  __nv_bfloat16* dq;
  __nv_bfloat16* dk;
  __nv_bfloat16* dv;
  int seq;
  float scale;
};

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbarrier_init(uint32_t bar, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(n) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(uint32_t bar) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(bar) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t bar, uint32_t bytes) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;}" ::"r"(bar), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(uint32_t bar, uint32_t parity) {
  uint32_t ok;
  asm volatile(
      "{.reg .pred p;\n"
      " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      " selp.u32 %0, 1, 0, p;}\n"
      : "=r"(ok)
      : "r"(bar), "r"(parity)
      : "memory");
  return ok;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
  while (!mbarrier_try_wait(bar, parity)) {
  }
}

__device__ __forceinline__ void load_box(uint32_t dst, const CUtensorMap* map, uint32_t bar, int col, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::
          "r"(dst),
      "l"(map), "r"(col), "r"(row), "r"(bar)
      : "memory");
}

__device__ __forceinline__ void load_linear(uint32_t dst, const float* src, uint32_t bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(dst),
               "l"(src), "r"(bytes), "r"(bar)
               : "memory");
}

__device__ __forceinline__ void prefetch(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// 128-byte swizzle: 8 rows of 128 bytes are one atom of 1024 bytes.
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading_bytes) {
  constexpr uint64_t kSwizzle128 = 1ull << 62;
  constexpr uint64_t kStride = static_cast<uint64_t>(1024 >> 4) << 32;
  return kSwizzle128 | kStride | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>((address & 0x3ffff) >> 4);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(N) : "memory");
}

#define OUT2(d, i) "+f"((d)[i]), "+f"((d)[(i) + 1])
#define OUT8(d, i) OUT2(d, i), OUT2(d, (i) + 2), OUT2(d, (i) + 4), OUT2(d, (i) + 6)
#define OUT32(d, i) OUT8(d, i), OUT8(d, (i) + 8), OUT8(d, (i) + 16), OUT8(d, (i) + 24)

template <bool kAccumulate>
__device__ __forceinline__ void mma_64x64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,\n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},\n"
      "%32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : OUT32(d, 0)
      : "l"(a), "l"(b), "n"(kAccumulate ? 1 : 0));
}

__device__ __forceinline__ void mma_64x128(float (&d)[64], const uint32_t a[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16\n"
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15,\n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,\n"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,\n"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63},\n"
      "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;\n"
      : OUT32(d, 0), OUT32(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// X = own x tile^T over the head dimension.
__device__ __forceinline__ void product(float (&x)[32], uint32_t own, uint32_t tile) {
  mma_64x64<false>(x, descriptor(own, 16), descriptor(tile, 16));
#pragma unroll
  for (int k = 1; k < 8; ++k) {
    const uint32_t a = own + (k / 4) * (kOwnBytes / 2) + (k % 4) * 32;
    const uint32_t b = tile + (k / 4) * (kTileBytes / 2) + (k % 4) * 32;
    mma_64x64<true>(x, descriptor(a, 16), descriptor(b, 16));
  }
}

// ACC += registers x tile.
__device__ __forceinline__ void accumulate(float (&acc)[64], const uint32_t (&a)[4][4], uint32_t tile) {
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) mma_64x128(acc, a[k], descriptor(tile + k * 2048, kTileBytes / 2));
}

__device__ __forceinline__ float exp2f_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ uint32_t pack2(float x, float y) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(y), "f"(x));
  return r;
}

__device__ __forceinline__ void pack_fragments(uint32_t (&out)[4][4], const float (&x)[32]) {
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int c = 0; c < 4; ++c) out[k][c] = pack2(x[8 * k + 2 * c], x[8 * k + 2 * c + 1]);
}

__device__ __forceinline__ void store_rows(__nv_bfloat16* out, const float (&acc)[64], size_t row, int lane, float scale) {
#pragma unroll
  for (int j = 0; j < 16; ++j) {
    const size_t at = row * kHeadDim + j * 8 + (lane & 3) * 2;
    *reinterpret_cast<uint32_t*>(out + at) = pack2(acc[4 * j] * scale, acc[4 * j + 1] * scale);
    *reinterpret_cast<uint32_t*>(out + at + 8 * kHeadDim) = pack2(acc[4 * j + 2] * scale, acc[4 * j + 3] * scale);
  }
}

struct Range {
  int first, count;  // streamed tiles
};

__device__ __forceinline__ void produce(uint32_t base, const CUtensorMap* own0, const CUtensorMap* own1,
                                        const CUtensorMap* tile0, const CUtensorMap* tile1, const float* lse,
                                        const float* delta, bool terms, int own_row, int head_row, Range range) {
  const uint32_t own_bar = base + kBarsAt, full = own_bar + 8, empty = full + 8 * kStages;
  mbarrier_arrive_expect(own_bar, 2 * kOwnBytes);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    load_box(base + h * kOwnBytes / 2, own0, own_bar, 64 * h, own_row);
    load_box(base + kOwnBytes + h * kOwnBytes / 2, own1, own_bar, 64 * h, own_row);
  }
  int stage = 0;
  uint32_t phase = 1;
  for (int i = 0; i < range.count; ++i) {
    const int row = head_row + (range.first + i) * kTile;
    const uint32_t at = base + 2 * kOwnBytes + stage * kStagePitch;
    const uint32_t bar = full + 8 * stage;
    mbarrier_wait(empty + 8 * stage, phase);
    mbarrier_arrive_expect(bar, terms ? kStageBytes : kStagePitch);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      load_box(at + h * kTileBytes / 2, tile0, bar, 64 * h, row);
      load_box(at + kTileBytes + h * kTileBytes / 2, tile1, bar, 64 * h, row);
    }
    if (terms) {
      load_linear(base + kTermsAt + stage * 2 * kTile * 4, lse + row, kTile * 4, bar);
      load_linear(base + kTermsAt + stage * 2 * kTile * 4 + kTile * 4, delta + row, kTile * 4, bar);
    }
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
}

__device__ __forceinline__ void consume_dkv(const Params& params, uint32_t base, const char* smem, int wg, int own,
                                            int head_row, Range range) {
  const uint32_t own_bar = base + kBarsAt, full = own_bar + 8, empty = full + 8 * kStages;
  const int tid = threadIdx.x % 128, warp = tid / 32, lane = tid % 32;
  const int key = own + wg * 64 + warp * 16 + lane / 4;
  const float c = params.scale * 1.4426950408889634f;
  float dk[64], dv[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) dk[j] = dv[j] = 0.f;
  mbarrier_wait(own_bar, 0);
  int stage = 0;
  uint32_t phase = 0;
  for (int i = 0; i < range.count; ++i) {
    const uint32_t tile = base + 2 * kOwnBytes + stage * kStagePitch;
    const float* terms = reinterpret_cast<const float*>(smem + kTermsAt + stage * 2 * kTile * 4);
    mbarrier_wait(full + 8 * stage, phase);
    float p[32], ds[32];
    uint32_t frag[4][4];
    wgmma_fence();
    product(p, base + wg * 8192, tile);
    wgmma_commit();
    product(ds, base + kOwnBytes + wg * 8192, tile + kTileBytes);
    wgmma_commit();
    wgmma_wait<1>();
    const int query = (range.first + i) * kTile + (lane & 3) * 2;
    const bool masked = (range.first + i) * kTile < own + kOwn;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(terms + 8 * j + (lane & 3) * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float x = exp2f_fast(p[4 * j + e] * c - ((e & 1) ? l.y : l.x) * 1.4426950408889634f);
        if (masked && query + 8 * j + (e & 1) < key + (e >> 1) * 8) x = 0.f;
        p[4 * j + e] = x;
      }
    }
    pack_fragments(frag, p);
    wgmma_wait<0>();
    wgmma_fence();
    accumulate(dv, frag, tile + kTileBytes);
    wgmma_commit();
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(terms + kTile + 8 * j + (lane & 3) * 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) ds[4 * j + e] = p[4 * j + e] * (ds[4 * j + e] - ((e & 1) ? d.y : d.x));
    }
    uint32_t ds_frag[4][4];
    pack_fragments(ds_frag, ds);
    wgmma_fence();
    accumulate(dk, ds_frag, tile);
    wgmma_commit();
    wgmma_wait<0>();
    if (tid == 0) mbarrier_arrive(empty + 8 * stage);
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  store_rows(params.dk, dk, head_row + key, lane, params.scale);
  store_rows(params.dv, dv, head_row + key, lane, 1.f);
}

__device__ __forceinline__ void consume_dq(const Params& params, uint32_t base, int wg, int own, int head_row,
                                           Range range) {
  const uint32_t own_bar = base + kBarsAt, full = own_bar + 8, empty = full + 8 * kStages;
  const int tid = threadIdx.x % 128, warp = tid / 32, lane = tid % 32;
  const int query = own + wg * 64 + warp * 16 + lane / 4;
  const float c = params.scale * 1.4426950408889634f;
  const float l[2] = {params.lse[head_row + query] * 1.4426950408889634f,
                      params.lse[head_row + query + 8] * 1.4426950408889634f};
  const float d[2] = {params.delta[head_row + query], params.delta[head_row + query + 8]};
  float dq[64];
#pragma unroll
  for (int j = 0; j < 64; ++j) dq[j] = 0.f;
  mbarrier_wait(own_bar, 0);
  int stage = 0;
  uint32_t phase = 0;
  for (int i = 0; i < range.count; ++i) {
    const uint32_t tile = base + 2 * kOwnBytes + stage * kStagePitch;
    mbarrier_wait(full + 8 * stage, phase);
    float p[32], ds[32];
    wgmma_fence();
    product(p, base + wg * 8192, tile);
    wgmma_commit();
    product(ds, base + kOwnBytes + wg * 8192, tile + kTileBytes);
    wgmma_commit();
    wgmma_wait<1>();
    const int key = (range.first + i) * kTile + (lane & 3) * 2;
    const bool masked = (range.first + i + 1) * kTile > own;
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float x = exp2f_fast(p[4 * j + e] * c - l[e >> 1]);
        if (masked && key + 8 * j + (e & 1) > query + (e >> 1) * 8) x = 0.f;
        p[4 * j + e] = x;
      }
    wgmma_wait<0>();
#pragma unroll
    for (int j = 0; j < 32; ++j) ds[j] = p[j] * (ds[j] - d[(j >> 1) & 1]);
    uint32_t frag[4][4];
    pack_fragments(frag, ds);
    wgmma_fence();
    accumulate(dq, frag, tile);
    wgmma_commit();
    wgmma_wait<0>();
    if (tid == 0) mbarrier_arrive(empty + 8 * stage);
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
  store_rows(params.dq, dq, head_row + query, lane, params.scale);
}

__global__ void __launch_bounds__(kThreads, 1) backward_kernel(const __grid_constant__ Params params) {
  extern __shared__ char raw[];
  const uint32_t raw_at = shared_address(raw);
  const uint32_t base = (raw_at + 1023) & ~1023u;
  const char* smem = raw + (base - raw_at);
  const bool is_dq = blockIdx.x & 1;
  const int index = blockIdx.x >> 1;
  const int blocks = params.seq / kOwn;
  const int own = (is_dq ? blocks - 1 - index : index) * kOwn;  // most work first
  const int head_row = blockIdx.y * params.seq;
  const Range range = is_dq ? Range{0, (own + kOwn) / kTile} : Range{own / kTile, (params.seq - own) / kTile};

  if (threadIdx.x == 0) {
    mbarrier_init(base + kBarsAt, 1);
    for (int s = 0; s < kStages; ++s) {
      mbarrier_init(base + kBarsAt + 8 + 8 * s, 1);
      mbarrier_init(base + kBarsAt + 8 + 8 * kStages + 8 * s, kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const int wg = threadIdx.x / 128;
  if (wg == kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == kConsumers * 128) {
      if (is_dq) {
        produce(base, &params.q_own, &params.do_own, &params.k_tile, &params.v_tile, nullptr, nullptr, false,
                head_row + own, head_row, range);
      } else {
        produce(base, &params.k_own, &params.v_own, &params.q_tile, &params.do_tile, params.lse, params.delta, true,
                head_row + own, head_row, range);
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    if (is_dq) {
      consume_dq(params, base, wg, own, head_row, range);
    } else {
      consume_dkv(params, base, smem, wg, own, head_row, range);
    }
  }
}

__global__ void __launch_bounds__(256) delta_kernel(const uint2* o, const uint2* d_o, float* delta, int rows) {
  const int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const uint2 a = o[(size_t)row * 32 + lane], b = d_o[(size_t)row * 32 + lane];
  const uint32_t x[2] = {a.x, a.y}, y[2] = {b.x, b.y};
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum += __uint_as_float(x[i] << 16) * __uint_as_float(y[i] << 16);
    sum += __uint_as_float(x[i] & 0xffff0000u) * __uint_as_float(y[i] & 0xffff0000u);
  }
  for (int m = 16; m; m >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (lane == 0) delta[row] = sum;
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t rows, uint32_t box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[2] = {kHeadDim, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[1] = {kHeadDim * 2};
  const cuuint32_t box[2] = {64, box_rows};
  const cuuint32_t element_strides[2] = {1, 1};
  const CUresult result = cuTensorMapEncodeTiled(
      &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t.data_ptr(), dims, strides, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed with " << int(result);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2), rows = heads * seq;
  if (seq % kOwn != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << kOwn;
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  auto check = [](cudaError_t e, const char* what) {
    if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
  };
  float* delta = nullptr;
  check(cudaMallocAsync(&delta, rows * sizeof(float), stream), "cudaMallocAsync");
  delta_kernel<<<static_cast<unsigned>((rows + 7) / 8), 256, 0, stream>>>(
      static_cast<const uint2*>(O.data_ptr()), static_cast<const uint2*>(dO.data_ptr()), delta, static_cast<int>(rows));
  check(cudaGetLastError(), "delta_kernel");

  Params params;
  params.q_own = encode(Q, rows, kOwn);
  params.k_own = encode(K, rows, kOwn);
  params.v_own = encode(V, rows, kOwn);
  params.do_own = encode(dO, rows, kOwn);
  params.q_tile = encode(Q, rows, kTile);
  params.k_tile = encode(K, rows, kTile);
  params.v_tile = encode(V, rows, kTile);
  params.do_tile = encode(dO, rows, kTile);
  params.lse = static_cast<const float*>(L.data_ptr());
  params.delta = delta;
  params.dq = static_cast<__nv_bfloat16*>(dQ.data_ptr());
  params.dk = static_cast<__nv_bfloat16*>(dK.data_ptr());
  params.dv = static_cast<__nv_bfloat16*>(dV.data_ptr());
  params.seq = static_cast<int>(seq);
  params.scale = 0.08838834764831845f;
  check(cudaFuncSetAttribute(backward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes), "shared memory");
  backward_kernel<<<dim3(static_cast<unsigned>(2 * seq / kOwn), static_cast<unsigned>(heads)), kThreads, kSmemBytes,
                    stream>>>(params);
  check(cudaGetLastError(), "backward_kernel");
  check(cudaFreeAsync(delta, stream), "cudaFreeAsync");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
