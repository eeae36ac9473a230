// MHA forward + LSE, D = 96 on Hopper. TMA, mbarrier pipeline, wgmma, warp specialization.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kD = 96;
constexpr int kPad = 128;
constexpr int kM = 128;
constexpr int kNTile = 128;
constexpr int kStages = 2;
constexpr int kThreads = 384;
constexpr uint32_t kQBytes = kM * kPad * 2;
constexpr uint32_t kKvBytes = kNTile * kPad * 2;
constexpr uint32_t kPanel = 128 * 128;  // 128 rows of 128 bytes

struct __align__(1024) Tiles {
  uint8_t q[kQBytes];
  uint8_t k[kStages][kKvBytes];
  uint8_t v[kStages][kKvBytes];
  uint64_t bars[1 + 4 * kStages];
};

__device__ __forceinline__ uint32_t ptr(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void expect(uint32_t bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "L%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@!p bra L%=;\n"
      "}\n" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void load_panel(uint32_t dst, const CUtensorMap* map, uint32_t bar, int col, int row,
                                           int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          dst),
      "l"(map), "r"(col), "r"(row), "r"(head), "r"(bar)
      : "memory");
}

__device__ __forceinline__ uint64_t descriptor(uint32_t addr, uint32_t leading) {
  uint64_t desc = 0;
  desc |= (uint64_t)((addr & 0x3FFFF) >> 4);
  desc |= (uint64_t)(leading >> 4) << 16;
  desc |= (uint64_t)(1024 >> 4) << 32;
  desc |= (uint64_t)1 << 62;
  return desc;
}

#define V4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define V16(d, i) V4(d, i), V4(d, i + 4), V4(d, i + 8), V4(d, i + 12)

__device__ __forceinline__ void wgmma_64x128(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
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
      : V16(d, 0), V16(d, 16), V16(d, 32), V16(d, 48)
      : "l"(a), "l"(b), "r"(accumulate));
}

__device__ __forceinline__ void wgmma_64x96(float (&d)[48], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 1;\n"
      "}\n"
      : V16(d, 0), V16(d, 16), V16(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ void turn_wait(int wg) { asm volatile("bar.sync %0, 256;" ::"r"(wg + 1) : "memory"); }
__device__ __forceinline__ void turn_give(int wg) { asm volatile("bar.arrive %0, 256;" ::"r"(2 - wg) : "memory"); }

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t cvt2(float lo, float hi) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
  return y;
}

__device__ __forceinline__ void start_scores(float (&s)[64], uint32_t q, uint32_t k) {
  wg_fence();
#pragma unroll
  for (int i = 0; i < kD / 16; ++i) {
    const uint32_t off = (i / 4) * kPanel + (i % 4) * 32;
    wgmma_64x128(s, descriptor(q + off, 16), descriptor(k + off, 16), i != 0);
  }
  wg_commit();
}

__device__ __forceinline__ void start_output(float (&o)[48], const uint32_t (&p)[8][4], uint32_t v) {
  wg_fence();
#pragma unroll
  for (int i = 0; i < kNTile / 16; ++i) wgmma_64x96(o, p[i], descriptor(v + i * 2048, kPanel));
  wg_commit();
}

__device__ __forceinline__ void softmax(float (&s)[64], float (&m)[2], float (&l)[2], float (&f)[2], float c) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = m[h];
#pragma unroll
    for (int i = 2 * h; i < 64; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    f[h] = ex2((m[h] - top) * c);
    m[h] = top;
    const float shift = top * c;
    float sum = 0.f;
#pragma unroll
    for (int i = 2 * h; i < 64; i += 4) {
      s[i] = ex2(fmaf(s[i], c, -shift));
      s[i + 1] = ex2(fmaf(s[i + 1], c, -shift));
      sum += s[i] + s[i + 1];
    }
    l[h] = l[h] * f[h] + sum;
  }
}

__device__ __forceinline__ void to_bf16(uint32_t (&p)[8][4], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i / 4][i % 4] = cvt2(s[2 * i], s[2 * i + 1]);
}

__global__ void __launch_bounds__(kThreads, 1)
    mha_d96(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
            const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq,
            float scale) {
  extern __shared__ __align__(1024) uint8_t smem_raw[];
  Tiles& sm = *reinterpret_cast<Tiles*>(smem_raw);
  const uint32_t bars = ptr(sm.bars);
  const uint32_t q_full = bars;
  const auto k_full = [&](int s) { return bars + 8 + 8 * s; };
  const auto v_full = [&](int s) { return bars + 8 + 8 * (kStages + s); };
  const auto k_empty = [&](int s) { return bars + 8 + 8 * (2 * kStages + s); };
  const auto v_empty = [&](int s) { return bars + 8 + 8 * (3 * kStages + s); };
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int first = blockIdx.x * kM;
  const int n = seq / kNTile;

  if (threadIdx.x == 0) {
    init(q_full, 1);
    for (int s = 0; s < kStages; ++s) {
      init(k_full(s), 1);
      init(v_full(s), 1);
      init(k_empty(s), 2);
      init(v_empty(s), 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      expect(q_full, kQBytes);
      load_panel(ptr(sm.q), &map_q, q_full, 0, first, head);
      load_panel(ptr(sm.q) + kPanel, &map_q, q_full, 64, first, head);
      for (int j = 0; j < n; ++j) {
        const int s = j % kStages;
        const uint32_t parity = ((j / kStages) & 1) ^ 1;
        wait(k_empty(s), parity);
        expect(k_full(s), kKvBytes);
        load_panel(ptr(sm.k[s]), &map_k, k_full(s), 0, j * kNTile, head);
        load_panel(ptr(sm.k[s]) + kPanel, &map_k, k_full(s), 64, j * kNTile, head);
        wait(v_empty(s), parity);
        expect(v_full(s), kKvBytes);
        load_panel(ptr(sm.v[s]), &map_v, v_full(s), 0, j * kNTile, head);
        load_panel(ptr(sm.v[s]) + kPanel, &map_v, v_full(s), 64, j * kNTile, head);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const float c = scale * 1.4426950408889634f;
  const uint32_t q = ptr(sm.q) + wg * 64 * 128;
  float s[64], o[48];
  uint32_t p[8][4];
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f}, f[2];
#pragma unroll
  for (int i = 0; i < 48; ++i) o[i] = 0.f;

  if (wg == 1) turn_give(1);
  wait(q_full, 0);
  wait(k_full(0), 0);
  turn_wait(wg);
  start_scores(s, q, ptr(sm.k[0]));
  turn_give(wg);
  wg_wait<0>();
  if (t == 0) arrive(k_empty(0));
  softmax(s, m, l, f, c);
  to_bf16(p, s);
  for (int j = 1; j < n; ++j) {
    const int a = j % kStages;
    const int b = (j - 1) % kStages;
    wait(k_full(a), (j / kStages) & 1);
    turn_wait(wg);
    start_scores(s, q, ptr(sm.k[a]));
    wait(v_full(b), ((j - 1) / kStages) & 1);
    start_output(o, p, ptr(sm.v[b]));
    turn_give(wg);
    wg_wait<1>();
    if (t == 0) arrive(k_empty(a));
    softmax(s, m, l, f, c);
    wg_wait<0>();
    if (t == 0) arrive(v_empty(b));
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] *= f[(i / 2) % 2];
    to_bf16(p, s);
  }
  if (wg == 0) turn_wait(0);
  const int e = (n - 1) % kStages;
  wait(v_full(e), ((n - 1) / kStages) & 1);
  start_output(o, p, ptr(sm.v[e]));
  wg_wait<0>();

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = l[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const float inverse = 1.f / sum;
    const int64_t row = (int64_t)head * seq + first + wg * 64 + (t / 32) * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) lse[row] = m[h] * scale + logf(sum);
#pragma unroll
    for (int i = 0; i < 12; ++i)
      *reinterpret_cast<uint32_t*>(out + row * kD + i * 8 + (lane % 4) * 2) =
          cvt2(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
  }
}

CUtensorMap make_map(const tvm::ffi::TensorView& x, int64_t heads, int64_t seq) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {kD, static_cast<cuuint64_t>(seq), static_cast<cuuint64_t>(heads)};
  const cuuint64_t strides[2] = {kD * 2, static_cast<cuuint64_t>(seq) * kD * 2};
  const cuuint32_t box[3] = {64, 128, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data_ptr(), dims, strides, box,
                                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % 128 != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap map_q = make_map(Q, heads, seq);
  const CUtensorMap map_k = make_map(K, heads, seq);
  const CUtensorMap map_v = make_map(V, heads, seq);
  cudaError_t error = cudaFuncSetAttribute(mha_d96, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "cudaFuncSetAttribute: " << cudaGetErrorString(error);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha_d96<<<dim3(seq / kM, heads), kThreads, sizeof(Tiles), stream>>>(
      map_q, map_k, map_v, static_cast<__nv_bfloat16*>(O.data_ptr()), static_cast<float*>(LSE.data_ptr()),
      static_cast<int>(seq), 0.10206207261596577f);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launching mha_d96: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
