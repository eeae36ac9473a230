// MHA forward + LSE, D = 64: two row blocks per warpgroup, interleaved; exponentials split between MUFU and FMA.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 64;
constexpr int BLOCK_Q = 256;
constexpr int BLOCK_K = 64;
constexpr int STAGES = 6;
constexpr int THREADS = 384;
constexpr int KV_BYTES = BLOCK_K * D * 2;

struct __align__(128) Layout {
  alignas(1024) uint8_t q[BLOCK_Q * D * 2];
  alignas(1024) uint8_t k[STAGES][KV_BYTES];
  alignas(1024) uint8_t v[STAGES][KV_BYTES];
  uint64_t q_bar;
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
};

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void init_barrier(uint32_t b, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void expect_bytes(uint32_t b, uint32_t n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ bool test(uint32_t b, uint32_t parity) {
  uint32_t r;
  asm volatile(
      "{ .reg .pred q; mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2; selp.u32 %0, 1, 0, q; }"
      : "=r"(r)
      : "r"(b), "r"(parity)
      : "memory");
  return r;
}
__device__ __forceinline__ void wait(uint32_t b, uint32_t parity) {
  while (!test(b, parity)) __nanosleep(20);
}
__device__ __forceinline__ void copy_tile(uint32_t to, const CUtensorMap* map, uint32_t bar, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      ::"r"(to), "l"(map), "n"(0), "r"(row), "r"(head), "r"(bar)
      : "memory");
}

__device__ __forceinline__ uint64_t operand(uint32_t address) {
  uint64_t d;
  asm("{\n"
      ".reg .b32 lo, hi;\n"
      "bfe.u32 lo, %1, 4, 14;\n"
      "or.b32 lo, lo, 0x10000;\n"
      "mov.b32 hi, 0x40000040;\n"
      "mov.b64 %0, {lo, hi};\n"
      "}"
      : "=l"(d)
      : "r"(address));
  return d;
}

#define OUT32(c)                                                                                                      \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),         \
      "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),          \
      "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),         \
      "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define TEXT32                                                                                                  \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, "  \
  "%23, %24, %25, %26, %27, %28, %29, %30, %31}"

template <bool Accumulate>
__device__ __forceinline__ void mma_qk(float (&c)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TEXT32 ", %32, %33, p, 1, 1, 0, 0;\n"
      "}\n"
      : OUT32(c)
      : "l"(a), "l"(b), "n"(int(Accumulate)));
}

__device__ __forceinline__ void mma_pv(float (&c)[32], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " TEXT32 ", {%32, %33, %34, %35}, %36, p, 1, 1, 1;\n"
      "}\n"
      : OUT32(c)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}

__device__ __forceinline__ float exp2_unit(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x for x <= 0 on the FMA units: Cody-Waite with a cubic of the fraction, far below bf16's rounding.
__device__ __forceinline__ float exp2_poly(float x) {
  x = fmaxf(x, -126.f);
  const float magic = 12582912.f;  // 1.5 * 2^23
  const float shifted = __fadd_rn(x, magic);
  const float f = x - __fsub_rn(shifted, magic);  // in [-0.5, 0.5]
  float p = fmaf(f, 0.05550410866f, 0.2402265070f);
  p = fmaf(p, f, 0.6931471806f);
  p = fmaf(p, f, 1.0f);
  return __int_as_float(__float_as_int(p) + (__float_as_int(shifted) << 23));
}

struct Rows {
  float s[32];
  float o[32];
  uint32_t p[16];
  float m[2];
  float l[2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] = 0.f;
    m[0] = m[1] = -1e30f;
    l[0] = l[1] = 0.f;
  }

  __device__ __forceinline__ void issue_scores(uint32_t q, uint32_t k) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    mma_qk<false>(s, operand(q), operand(k));
    mma_qk<true>(s, operand(q + 32), operand(k + 32));
    mma_qk<true>(s, operand(q + 64), operand(k + 64));
    mma_qk<true>(s, operand(q + 96), operand(k + 96));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }

  __device__ __forceinline__ void issue_output(uint32_t v) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i)
      mma_pv(o, p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3], operand(v + i * 2048));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }

  __device__ __forceinline__ void softmax(float c) {
    float a[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 0; i < 8; ++i) top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
      a[h] = exp2_unit((m[h] - top) * c);
      m[h] = top;
      const float shift = -top * c;
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float x = fmaf(s[4 * i + 2 * h], c, shift);
        const float y = fmaf(s[4 * i + 2 * h + 1], c, shift);
        s[4 * i + 2 * h] = exp2_unit(x);
        s[4 * i + 2 * h + 1] = (i & 1) ? exp2_poly(y) : exp2_unit(y);
        sum += s[4 * i + 2 * h] + s[4 * i + 2 * h + 1];
      }
      l[h] = l[h] * a[h] + sum;
    }
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] *= a[(i >> 1) & 1];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      __nv_bfloat162 v = __floats2bfloat162_rn(s[2 * i], s[2 * i + 1]);
      p[i] = *reinterpret_cast<uint32_t*>(&v);
    }
  }
};

template <int N>
__device__ __forceinline__ void wait_mma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__global__ void __launch_bounds__(THREADS, 1)
    mha_kernel(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
               const __grid_constant__ CUtensorMap mv, __nv_bfloat16* out, float* lse, int seq) {
  extern __shared__ __align__(1024) uint8_t smem[];
  Layout& sm = reinterpret_cast<Layout&>(*smem);
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int first = blockIdx.x * BLOCK_Q;
  const int steps = seq / BLOCK_K;
  const uint32_t q_bar = shared_address(&sm.q_bar);
  const uint32_t full = shared_address(sm.full);
  const uint32_t empty = shared_address(sm.empty);

  if (threadIdx.x == 0) {
    init_barrier(q_bar, 1);
    for (int i = 0; i < STAGES; ++i) {
      init_barrier(full + 8 * i, 1);
      init_barrier(empty + 8 * i, 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      expect_bytes(q_bar, BLOCK_Q * D * 2);
      copy_tile(shared_address(sm.q), &mq, q_bar, first, head);
      for (int j = 0; j < steps; ++j) {
        const int s = j % STAGES;
        wait(empty + 8 * s, ((j / STAGES) & 1) ^ 1);
        expect_bytes(full + 8 * s, 2 * KV_BYTES);
        copy_tile(shared_address(sm.k[s]), &mk, full + 8 * s, j * BLOCK_K, head);
        copy_tile(shared_address(sm.v[s]), &mv, full + 8 * s, j * BLOCK_K, head);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const float scale = 0.125f;
  const float c = scale * 1.4426950408889634f;
  const uint32_t qa = shared_address(sm.q) + (wg - 1) * 128 * 128;
  const uint32_t qb = qa + 64 * 128;
  Rows a, b;
  a.clear();
  b.clear();
  wait(q_bar, 0);
  wait(full, 0);
  a.issue_scores(qa, shared_address(sm.k[0]));
  for (int j = 0; j < steps; ++j) {
    const int s = j % STAGES;
    const int next = (j + 1) % STAGES;
    // In flight: scores of a for tile j, and behind the first tile the output of b for tile j - 1.
    b.issue_scores(qb, shared_address(sm.k[s]));
    wait_mma<1>();
    if (j > 0 && t == 0) arrive(empty + 8 * ((j - 1) % STAGES));
    a.softmax(c);
    a.issue_output(shared_address(sm.v[s]));
    wait_mma<1>();  // scores of b
    if (j + 1 < steps) {
      wait(full + 8 * next, ((j + 1) / STAGES) & 1);
      // The softmax of a for tile j is done, so its scores may be overwritten.
      a.issue_scores(qa, shared_address(sm.k[next]));
    }
    b.softmax(c);
    b.issue_output(shared_address(sm.v[s]));
  }
  wait_mma<0>();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    Rows& x = r == 0 ? a : b;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float l = x.l[h];
      l += __shfl_xor_sync(0xffffffff, l, 1);
      l += __shfl_xor_sync(0xffffffff, l, 2);
      const float inverse = 1.f / l;
      const int row = first + (wg - 1) * 128 + r * 64 + (t / 32) * 16 + lane / 4 + 8 * h;
      if (row < seq) {
        const int64_t at = int64_t(head) * seq + row;
        if (lane % 4 == 0) lse[at] = x.m[h] * scale + logf(l);
#pragma unroll
        for (int i = 0; i < 8; ++i)
          *reinterpret_cast<__nv_bfloat162*>(out + at * D + i * 8 + (lane % 4) * 2) =
              __floats2bfloat162_rn(x.o[4 * i + 2 * h] * inverse, x.o[4 * i + 2 * h + 1] * inverse);
      }
    }
  }
}

CUtensorMap tile_map(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads, int rows) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, (cuuint64_t)seq, (cuuint64_t)heads};
  const cuuint64_t strides[2] = {D * 2, (cuuint64_t)(seq * D * 2)};
  const cuuint32_t box[3] = {D, (cuuint32_t)rows, 1};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BLOCK_K != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 64";
  const CUtensorMap mq = tile_map(Q, seq, heads, BLOCK_Q);
  const CUtensorMap mk = tile_map(K, seq, heads, BLOCK_K);
  const CUtensorMap mv = tile_map(V, seq, heads, BLOCK_K);
  cudaError_t error = cudaFuncSetAttribute(mha_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Layout));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  const dim3 grid((seq + BLOCK_Q - 1) / BLOCK_Q, heads);
  mha_kernel<<<grid, THREADS, sizeof(Layout), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                        static_cast<float*>(LSE.data_ptr()), (int)seq);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_kernel: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
