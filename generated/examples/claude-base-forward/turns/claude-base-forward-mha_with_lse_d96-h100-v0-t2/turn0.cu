// MHA forward + LSE, D = 96. 128 queries x 192 keys, P in shared memory, both products SS.
#include <cuda.h>
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ptx = cuda::ptx;

namespace {

constexpr int D = 96;
constexpr int PANEL = 32;
constexpr int PANELS = D / PANEL;
constexpr int BM = 128;
constexpr int BN = 192;
constexpr int STAGES = 2;
constexpr int THREADS = 384;
constexpr int KV_BYTES = BN * D * 2;

struct Shared {
  alignas(1024) __nv_bfloat16 q[PANELS][BM][PANEL];
  alignas(1024) __nv_bfloat16 k[STAGES][PANELS][BN][PANEL];
  alignas(1024) __nv_bfloat16 v[STAGES - 1][PANELS][BN][PANEL];
  alignas(1024) __nv_bfloat16 p[2][BN / 64][64][64];
  alignas(8) uint64_t q_full;
  uint64_t k_full[STAGES], k_empty[STAGES];
  uint64_t v_full, v_empty;
};
static_assert(sizeof(Shared) <= 232448, "shared memory");

__device__ __forceinline__ void wait(uint64_t* bar, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(bar, parity)) {
  }
}

enum class Swizzle : uint64_t { B128 = 1, B64 = 2 };

template <Swizzle S>
__device__ __forceinline__ uint64_t desc(const void* p, uint32_t leading = 16) {
  constexpr uint64_t stride = S == Swizzle::B128 ? 1024 : 512;
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t(leading >> 4) << 16) | ((stride >> 4) << 32) | (static_cast<uint64_t>(S) << 62);
}

#define L8(x, i) \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])
#define L48(x, i) L8(x, i), L8(x, i + 8), L8(x, i + 16), L8(x, i + 24), L8(x, i + 32), L8(x, i + 40)

__device__ __forceinline__ void mma_n192(float (&s)[96], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %98, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
      "%96, %97, p, 1, 1, 0, 0;\n"
      "}\n"
      : L48(s, 0), L48(s, 48)
      : "l"(a), "l"(b), "r"(acc));
}

// A = P, K-major; B = V, MN-major.
__device__ __forceinline__ void mma_n96(float (&o)[48], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "%48, %49, p, 1, 1, 0, 1;\n"
      "}\n"
      : L48(o, 0)
      : "l"(a), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t bf16_pair(float lo, float hi) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<const uint32_t*>(&v);
}

template <int Rows>
__device__ __forceinline__ void fetch(__nv_bfloat16 (&to)[PANELS][Rows][PANEL], const CUtensorMap* map, uint64_t* bar,
                                      int row, int head) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, uint32_t(sizeof(to)));
#pragma unroll
  for (int p = 0; p < PANELS; ++p) {
    const int32_t at[3] = {p * PANEL, row, head};
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to[p], map, at, bar);
  }
}

__global__ void __launch_bounds__(THREADS, 1)
    mha(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
        const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& sm = *reinterpret_cast<Shared*>(raw);
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int row0 = blockIdx.x * BM;
  const int tiles = (seq + BN - 1) / BN;

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    ptx::mbarrier_init(&sm.v_full, 1);
    ptx::mbarrier_init(&sm.v_empty, 2);
    for (int i = 0; i < STAGES; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 1);
      ptx::mbarrier_init(&sm.k_empty[i], 2);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      fetch(sm.q, &mq, &sm.q_full, row0, head);
      for (int j = 0; j < tiles; ++j) {
        const int s = j % STAGES;
        wait(&sm.k_empty[s], (j / STAGES & 1) ^ 1);
        fetch(sm.k[s], &mk, &sm.k_full[s], j * BN, head);
        wait(&sm.v_empty, (j & 1) ^ 1);
        fetch(sm.v[0], &mv, &sm.v_full, j * BN, head);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int me = wg - 1;
  const int tid = threadIdx.x % 128;
  const int lane = tid % 32;
  const int warp_row = tid / 32 * 16;
  const float scale = 0.10206207261596577f;
  const float c = scale * 1.4426950408889634f;
  float s[96], o[48];
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 48; ++i) o[i] = 0.f;

  wait(&sm.q_full, 0);
  for (int j = 0; j < tiles; ++j) {
    const int st = j % STAGES;
    wait(&sm.k_full[st], j / STAGES & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      mma_n192(s, desc<Swizzle::B64>(&sm.q[i / 2][me * 64][i % 2 * 16]), desc<Swizzle::B64>(&sm.k[st][i / 2][0][i % 2 * 16]),
               i);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (tid == 0) {
      ptx::mbarrier_arrive(&sm.k_empty[st]);
      if (j > 0) ptx::mbarrier_arrive(&sm.v_empty);
    }
    if ((j + 1) * BN > seq) {
#pragma unroll
      for (int i = 0; i < 96; ++i)
        if (j * BN + i / 4 * 8 + lane % 4 * 2 + i % 2 >= seq) s[i] = -INFINITY;
    }
    float f[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 2 * h; i < 96; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
      top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
      f[h] = ex2((m[h] - top) * c);
      m[h] = top;
      l[h] *= f[h];
#pragma unroll
      for (int i = 2 * h; i < 96; i += 4) {
        s[i] = ex2(fmaf(s[i], c, -top * c));
        s[i + 1] = ex2(fmaf(s[i + 1], c, -top * c));
        l[h] += s[i] + s[i + 1];
      }
    }
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] *= f[i / 2 % 2];
    // Probabilities: 24 blocks of 8 keys, two at a time.
    const int r = warp_row + lane % 16;
#pragma unroll
    for (int b = 0; b < BN / 8; b += 2) {
      const int chunk = b + lane / 16;
      __nv_bfloat16* to = &sm.p[me][chunk / 8][r][((chunk % 8) ^ (r % 8)) * 8];
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       uint32_t(__cvta_generic_to_shared(to))),
                   "r"(bf16_pair(s[4 * b], s[4 * b + 1])), "r"(bf16_pair(s[4 * b + 2], s[4 * b + 3])),
                   "r"(bf16_pair(s[4 * b + 4], s[4 * b + 5])), "r"(bf16_pair(s[4 * b + 6], s[4 * b + 7]))
                   : "memory");
    }
    ptx::fence_proxy_async(ptx::space_shared);
    asm volatile("bar.sync %0, 128;" ::"r"(wg) : "memory");
    wait(&sm.v_full, j & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < BN / 16; ++i)
      mma_n96(o, desc<Swizzle::B128>(&sm.p[me][i / 4][0][i % 4 * 16]), desc<Swizzle::B64>(&sm.v[0][0][i * 16][0], BN * 64));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float sum = l[h];
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    const float inverse = 1.f / sum;
    const int64_t row = int64_t(head) * seq + row0 + me * 64 + warp_row + lane / 4 + 8 * h;
    if (lane % 4 == 0) lse[row] = m[h] * scale + logf(sum);
    uint32_t* to = reinterpret_cast<uint32_t*>(out + row * D) + lane % 4;
#pragma unroll
    for (int i = 0; i < 12; ++i) to[4 * i] = bf16_pair(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
  }
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads, int rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  const cuuint32_t box[3] = {PANEL, cuuint32_t(rows), 1};
  const cuuint32_t ones[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << int(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BM) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap mq = encode(Q, seq, heads, BM), mk = encode(K, seq, heads, BN), mv = encode(V, seq, heads, BN);
  cudaError_t e = cudaFuncSetAttribute(mha, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha<<<dim3(seq / BM, heads), THREADS, sizeof(Shared), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                                 static_cast<float*>(LSE.data_ptr()), int(seq));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
