// MHA forward + LSE, D = 128. 128 queries, 176 keys, cuda::barrier pipelines, wgmma m64n176k16 and m64n128k16.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <utility>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace cde = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

namespace {

constexpr int D = 128;
constexpr int BM = 128;
constexpr int BN = 176;
constexpr int STAGES = 2;
constexpr int THREADS = 384;
constexpr int S_REGS = BN / 2;  // 88
constexpr int P_STEPS = BN / 16;  // 11

struct Tiles {
  alignas(1024) __nv_bfloat16 q[2][BM * 64];
  alignas(1024) __nv_bfloat16 k[STAGES][2][BN * 64];
  alignas(1024) __nv_bfloat16 v[STAGES][2][BN * 64];
};
struct Barriers {
  Barrier q;
  Barrier k_full[STAGES], k_empty[STAGES];
  Barrier v_full[STAGES], v_empty[STAGES];
};

__device__ __forceinline__ uint64_t desc(const void* p, uint32_t lead) {
  const uint64_t a = __cvta_generic_to_shared(p) & 0x3FFFF;
  return (a >> 4) | uint64_t(lead >> 4) << 16 | uint64_t(64) << 32 | uint64_t(1) << 62;
}

#define R1(x, i) "+f"(x[i])
#define R8(x, i) R1(x, i), R1(x, i + 1), R1(x, i + 2), R1(x, i + 3), R1(x, i + 4), R1(x, i + 5), R1(x, i + 6), R1(x, i + 7)

__device__ __forceinline__ void wgmma_qk(float (&s)[S_REGS], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %90, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87}, %88, %89, p, 1, 1, 0, 0;\n"
      "}\n"
      : R8(s, 0), R8(s, 8), R8(s, 16), R8(s, 24), R8(s, 32), R8(s, 40), R8(s, 48), R8(s, 56), R8(s, 64), R8(s, 72),
        R8(s, 80)
      : "l"(a), "l"(b), "r"(acc));
}

__device__ __forceinline__ void wgmma_pv(float (&o)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 1;\n"
      "}\n"
      : R8(o, 0), R8(o, 8), R8(o, 16), R8(o, 24), R8(o, 32), R8(o, 40), R8(o, 48), R8(o, 56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// One tile of two 64-column panels: issued by the thread that arrives with the byte count.
template <int Rows>
__device__ __forceinline__ void fetch(__nv_bfloat16 (&to)[2][Rows * 64], const CUtensorMap& map, Barrier& bar, int row,
                                      int head) {
  cde::cp_async_bulk_tensor_3d_global_to_shared(&to[0], &map, 0, row, head, bar);
  cde::cp_async_bulk_tensor_3d_global_to_shared(&to[1], &map, 64, row, head, bar);
  (void)cuda::device::barrier_arrive_tx(bar, 1, sizeof(to));
}

__global__ void __launch_bounds__(THREADS, 1)
    flash(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
          const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq,
          float scale) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Tiles& sm = *reinterpret_cast<Tiles*>(raw);
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barriers bars;
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int row0 = blockIdx.x * BM;
  const int tiles = (seq + BN - 1) / BN;

  if (threadIdx.x == 0) {
    init(&bars.q, 1);
    for (int s = 0; s < STAGES; ++s) {
      init(&bars.k_full[s], 1);
      init(&bars.v_full[s], 1);
      init(&bars.k_empty[s], 2);
      init(&bars.v_empty[s], 2);
    }
    cde::fence_proxy_async_shared_cta();
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      fetch<BM>(sm.q, mq, bars.q, row0, head);
      for (int j = 0; j < tiles; ++j) {
        const int s = j % STAGES;
        const bool free = ((j / STAGES) & 1) ^ 1;
        bars.k_empty[s].wait_parity(free);
        fetch<BN>(sm.k[s], mk, bars.k_full[s], j * BN, head);
        bars.v_empty[s].wait_parity(free);
        fetch<BN>(sm.v[s], mv, bars.v_full[s], j * BN, head);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int me = wg - 1;
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const float c = scale * 1.4426950408889634f;
  float o[64];
  float s[S_REGS];
  uint32_t p[P_STEPS][4];
  float m[2] = {-INFINITY, -INFINITY};
  float l[2] = {0.f, 0.f};
#pragma unroll
  for (float& x : o) x = 0.f;

  const auto scores = [&](int stage) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      wgmma_qk(s, desc(sm.q[i / 4] + me * 64 * 64 + (i % 4) * 16, 16), desc(sm.k[stage][i / 4] + (i % 4) * 16, 16),
               i > 0);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  };
  const auto output = [&](int stage) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < P_STEPS; ++i) wgmma_pv(o, p[i], desc(sm.v[stage][0] + i * 16 * 64, BN * 128));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  };
  const auto softmax = [&](int j, float (&f)[2]) {
    if ((j + 1) * BN > seq) {
#pragma unroll
      for (int i = 0; i < S_REGS; ++i)
        if (j * BN + (i / 4) * 8 + (lane % 4) * 2 + i % 2 >= seq) s[i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 2 * h; i < S_REGS; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      f[h] = ex2((m[h] - top) * c);
      m[h] = top;
      float sum = 0.f;
#pragma unroll
      for (int i = 2 * h; i < S_REGS; i += 4) {
        s[i] = ex2(fmaf(s[i], c, -top * c));
        s[i + 1] = ex2(fmaf(s[i + 1], c, -top * c));
        sum += s[i] + s[i + 1];
      }
      l[h] = fmaf(l[h], f[h], sum);
    }
  };
  const auto convert = [&] {
#pragma unroll
    for (int i = 0; i < S_REGS / 2; ++i) {
      const __nv_bfloat162 v = __floats2bfloat162_rn(s[2 * i], s[2 * i + 1]);
      p[i / 4][i % 4] = reinterpret_cast<const uint32_t&>(v);
    }
  };

  float f[2];
  bars.q.wait_parity(false);
  bars.k_full[0].wait_parity(false);
  scores(0);
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  if (tid == 0) (void)bars.k_empty[0].arrive();
  softmax(0, f);
  convert();
  for (int j = 1; j < tiles; ++j) {
    const int now = j % STAGES, before = (j - 1) % STAGES;
    bars.k_full[now].wait_parity((j / STAGES) & 1);
    scores(now);
    bars.v_full[before].wait_parity(((j - 1) / STAGES) & 1);
    output(before);
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (tid == 0) (void)bars.k_empty[now].arrive();
    softmax(j, f);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (tid == 0) (void)bars.v_empty[before].arrive();
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] *= f[(i / 2) % 2];
    convert();
  }
  const int last = (tiles - 1) % STAGES;
  bars.v_full[last].wait_parity(((tiles - 1) / STAGES) & 1);
  output(last);
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = l[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float inverse = 1.f / sum;
    const int64_t row = int64_t(head) * seq + row0 + me * 64 + (tid / 32) * 16 + lane / 4 + 8 * h;
    if (lane % 4 == 0) lse[row] = m[h] * scale + logf(sum);
    auto* to = reinterpret_cast<__nv_bfloat162*>(out + row * D) + lane % 4;
#pragma unroll
    for (int j = 0; j < 16; ++j)
      to[4 * j] = __floats2bfloat162_rn(o[4 * j + 2 * h] * inverse, o[4 * j + 2 * h + 1] * inverse);
  }
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t heads, int64_t seq, int rows) {
  CUtensorMap map{};
  const cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  const cuuint32_t box[3] = {64, cuuint32_t(rows), 1};
  const cuuint32_t ones[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << int(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BM) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap mq = encode(Q, heads, seq, BM), mk = encode(K, heads, seq, BN), mv = encode(V, heads, seq, BN);
  cudaError_t e = cudaFuncSetAttribute(flash, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Tiles));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  flash<<<dim3(seq / BM, heads), THREADS, sizeof(Tiles), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                                   static_cast<float*>(LSE.data_ptr()), int(seq),
                                                                   0.08838834764831845f);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "flash: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
