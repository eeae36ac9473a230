// Causal MHA forward + LSE, D = 64. bf16x2 exponentials, row sums by wgmma.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 64;
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int STAGES = 3;
constexpr int THREADS = 384;
constexpr int TILE = BN * D * 2;
constexpr int ONES = BN * 128;  // the panel of ones: BN rows of 128 bytes, of which 16 are used

struct Shared {
  alignas(1024) uint8_t q[BM * D * 2];
  alignas(1024) uint8_t k[STAGES][TILE];
  // V tiles; the panel of ones lies behind each, so that one descriptor spans both.
  alignas(1024) uint8_t v[STAGES][TILE + ONES];
  uint64_t q_full, q_empty;
  uint64_t full[2][STAGES];
  uint64_t empty[2][STAGES];
};

__device__ __forceinline__ uint32_t s2u(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void b_init(uint64_t* b, int n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(s2u(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void b_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(s2u(b)) : "memory");
}
__device__ __forceinline__ void b_expect(uint64_t* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(s2u(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void b_wait(uint64_t* b, int parity) {
  int done = 0;
  while (!done)
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.s32 %0, 1, 0, p;\n}\n"
        : "=r"(done)
        : "r"(s2u(b)), "r"(parity)
        : "memory");
}
__device__ __forceinline__ void g2s(void* to, const CUtensorMap& map, uint64_t* b, int row, int head) {
  const int zero = 0;
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          s2u(to)),
      "l"(&map), "r"(s2u(b)), "r"(zero), "r"(row), "r"(head)
      : "memory");
}

__device__ __forceinline__ uint64_t desc_k(uint32_t a) {
  return ((uint64_t)(a & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}
__device__ __forceinline__ uint64_t desc_v(uint32_t a) {
  return ((uint64_t)(a & 0x3FFFF) >> 4) | ((uint64_t)(TILE >> 4) << 16) | (64ull << 32) | (1ull << 62);
}

__device__ __forceinline__ void qk_mma(float (&s)[64], uint64_t a, uint64_t b, int acc) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]),
        "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), "+f"(s[16]),
        "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]),
        "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), "+f"(s[32]),
        "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]),
        "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]), "+f"(s[48]),
        "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]), "+f"(s[56]),
        "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63])
      : "l"(a), "l"(b), "r"(acc));
}

// 64 columns of O and, in columns 64..71, the row sum: 36 accumulators.
__device__ __forceinline__ void pv_mma(float (&o)[36], const uint32_t (&p)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35}, {%36,%37,%38,%39}, %40, p, 1, 1, 1;\n"
      "}\n"
      : "+f"(o[0]), "+f"(o[1]), "+f"(o[2]), "+f"(o[3]), "+f"(o[4]), "+f"(o[5]), "+f"(o[6]), "+f"(o[7]), "+f"(o[8]),
        "+f"(o[9]), "+f"(o[10]), "+f"(o[11]), "+f"(o[12]), "+f"(o[13]), "+f"(o[14]), "+f"(o[15]), "+f"(o[16]),
        "+f"(o[17]), "+f"(o[18]), "+f"(o[19]), "+f"(o[20]), "+f"(o[21]), "+f"(o[22]), "+f"(o[23]), "+f"(o[24]),
        "+f"(o[25]), "+f"(o[26]), "+f"(o[27]), "+f"(o[28]), "+f"(o[29]), "+f"(o[30]), "+f"(o[31]), "+f"(o[32]),
        "+f"(o[33]), "+f"(o[34]), "+f"(o[35])
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}

__device__ __forceinline__ uint32_t exp2_pair(float lo, float hi) {
  uint32_t x;
  asm("{\n"
      ".reg .b32 t;\n"
      "cvt.rn.bf16x2.f32 t, %2, %1;\n"
      "ex2.approx.ftz.bf16x2 %0, t;\n"
      "}\n"
      : "=r"(x)
      : "f"(lo), "f"(hi));
  return x;
}
__device__ __forceinline__ float exp2_one(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__global__ void __launch_bounds__(THREADS, 1)
    causal64(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
             const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq) {
  extern __shared__ __align__(1024) uint8_t mem[];
  Shared& sm = *reinterpret_cast<Shared*>(mem);
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int tiles = seq / BM;
  const int other = tiles - 1 - blockIdx.x;
  const int rounds = other == (int)blockIdx.x ? 1 : 2;

  if (threadIdx.x == 0) {
    b_init(&sm.q_full, 1);
    b_init(&sm.q_empty, 2);
    for (int i = 0; i < STAGES; ++i) {
      for (int j = 0; j < 2; ++j) {
        b_init(&sm.full[j][i], 1);
        b_init(&sm.empty[j][i], 2);
      }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  // Ones behind each V tile. Every bit of the panel is the same number, so the swizzle does not matter.
  for (int s = 0; s < STAGES; ++s) {
    uint32_t* ones = reinterpret_cast<uint32_t*>(sm.v[s] + TILE);
    for (int i = threadIdx.x; i < ONES / 4; i += THREADS) ones[i] = 0x3F803F80u;
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      int n = 0;
      for (int r = 0; r < rounds; ++r) {
        const int tile = r ? (int)blockIdx.x : other;
        b_wait(&sm.q_empty, r ^ 1);
        b_expect(&sm.q_full, BM * D * 2);
        g2s(sm.q, mq, &sm.q_full, tile * BM, head);
        for (int j = tile; j >= 0; --j, ++n) {
          const int s = n % STAGES;
          const int parity = ((n / STAGES) & 1) ^ 1;
          b_wait(&sm.empty[0][s], parity);
          b_expect(&sm.full[0][s], TILE);
          g2s(sm.k[s], mk, &sm.full[0][s], j * BN, head);
          b_wait(&sm.empty[1][s], parity);
          b_expect(&sm.full[1][s], TILE);
          g2s(sm.v[s], mv, &sm.full[1][s], j * BN, head);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const int local = wg * 64 + (t / 32) * 16 + lane / 4;
  const float scale = 0.125f;
  const float c = scale * 1.4426950408889634f;
  const uint32_t q = s2u(sm.q) + wg * 64 * 128;
  int n = 0;
  for (int r = 0; r < rounds; ++r) {
    const int tile = r ? (int)blockIdx.x : other;
    const int row = tile * BM + local;
    float o[36];
#pragma unroll
    for (int i = 0; i < 36; ++i) o[i] = 0.f;
    float m[2] = {-INFINITY, -INFINITY};
    uint32_t p[BN / 16][4];
    float s[64];
    b_wait(&sm.q_full, r);
    for (int j = tile; j >= 0; --j, ++n) {
      const int st = n % STAGES;
      const int parity = (n / STAGES) & 1;
      b_wait(&sm.full[0][st], parity);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < 4; ++i) qk_mma(s, desc_k(q + i * 32), desc_k(s2u(sm.k[st]) + i * 32), i != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      // The output product of the tile before may still run; the scores are the younger group, so wait for both.
      asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      if (t == 0) {
        b_arrive(&sm.empty[0][st]);
        if (j != tile) b_arrive(&sm.empty[1][(n + STAGES - 1) % STAGES]);
      }
      if (j == tile) {
#pragma unroll
        for (int i = 0; i < 64; ++i)
          if ((i / 4) * 8 + (lane % 4) * 2 + (i & 1) > local + ((i >> 1) & 1) * 8) s[i] = -INFINITY;
      }
      float f[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float top = m[h];
#pragma unroll
        for (int i = 2 * h; i < 64; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        f[h] = exp2_one((m[h] - top) * c);
        m[h] = top;
        const float shift = -top * c;
#pragma unroll
        for (int i = 0; i < 16; ++i)
          p[i / 2][(i & 1) * 2 + h] =
              exp2_pair(fmaf(s[4 * i + 2 * h], c, shift), fmaf(s[4 * i + 2 * h + 1], c, shift));
      }
#pragma unroll
      for (int i = 0; i < 36; ++i) o[i] *= f[(i >> 1) & 1];
      b_wait(&sm.full[1][st], parity);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int i = 0; i < BN / 16; ++i) pv_mma(o, p[i], desc_v(s2u(sm.v[st]) + i * 2048));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (t == 0) {
      b_arrive(&sm.empty[1][(n + STAGES - 1) % STAGES]);
      b_arrive(&sm.q_empty);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float l = o[32 + 2 * h];  // all columns of the panel hold the same sum
      const float inverse = 1.f / l;
      const int64_t at = (int64_t)head * seq + row + 8 * h;
      if (lane % 4 == 0) lse[at] = m[h] * scale + logf(l);
      __nv_bfloat162* to = reinterpret_cast<__nv_bfloat162*>(out + at * D) + lane % 4;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        to[4 * i] = __floats2bfloat162_rn(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
    }
  }
}

CUtensorMap make_map(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, (cuuint64_t)seq, (cuuint64_t)heads};
  const cuuint64_t strides[2] = {D * 2, (cuuint64_t)seq * D * 2};
  const cuuint32_t box[3] = {D, 128, 1};
  const cuuint32_t step[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % BM) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap mq = make_map(Q, seq, heads), mk = make_map(K, seq, heads), mv = make_map(V, seq, heads);
  cudaError_t e = cudaFuncSetAttribute(causal64, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  const dim3 grid((unsigned)((seq / BM + 1) / 2), (unsigned)heads);
  causal64<<<grid, THREADS, sizeof(Shared), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                      static_cast<float*>(LSE.data_ptr()), (int)seq);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "causal64: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
