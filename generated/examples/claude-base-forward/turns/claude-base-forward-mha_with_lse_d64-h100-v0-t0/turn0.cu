// MHA forward + LSE, D = 64. Three consumer warpgroups, TMA ring, wgmma m64n128k16 (scores) and m64n64k16 (output).
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 64;
constexpr int M_PER_WG = 64;
constexpr int WGS = 3;
constexpr int BM = M_PER_WG * WGS;
constexpr int BN = 128;
constexpr int STAGES = 4;
constexpr int THREADS = 128 * (WGS + 1);

struct alignas(1024) Shared {
  __nv_bfloat16 q[BM * D];
  __nv_bfloat16 k[STAGES][BN * D];
  __nv_bfloat16 v[STAGES][BN * D];
  uint64_t q_full;
  uint64_t k_full[STAGES];
  uint64_t v_full[STAGES];
  uint64_t k_empty[STAGES];
  uint64_t v_empty[STAGES];
};

__device__ __forceinline__ uint32_t sa(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

struct Mbar {
  static __device__ __forceinline__ void init(uint64_t* b, int n) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sa(b)), "r"(n) : "memory");
  }
  static __device__ __forceinline__ void arrive(uint64_t* b) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sa(b)) : "memory");
  }
  static __device__ __forceinline__ void expect(uint64_t* b, int n) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sa(b)), "r"(n) : "memory");
  }
  static __device__ __forceinline__ void wait(uint64_t* b, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred P;\n"
        "W%=:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n"
        "@!P bra W%=;\n"
        "}\n" ::"r"(sa(b)),
        "r"(parity)
        : "memory");
  }
};

__device__ __forceinline__ void tma_load(void* to, const CUtensorMap* map, uint64_t* bar, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
      :
      : "r"(sa(to)), "l"(map), "r"(0), "r"(row), "r"(head), "r"(sa(bar))
      : "memory");
}

__device__ __forceinline__ uint64_t desc(uint32_t a) {
  // 128-byte swizzle, 1024 bytes from 8 rows to the next. D = 64 is one panel, so the leading offset is not used.
  return (uint64_t(1) << 62) | (uint64_t(64) << 32) | (uint64_t(1) << 16) | ((a & 0x3FFFF) >> 4);
}

__device__ __forceinline__ void wgmma_n128(float (&c)[64], uint64_t a, uint64_t b, int d) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"
      "%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,"
      "%56,%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
        "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
        "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
        "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
        "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "l"(a), "l"(b), "r"(d));
}

__device__ __forceinline__ void wgmma_n64(float (&c)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"
      "%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void mma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define MMA_WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

__device__ __forceinline__ void qk(float (&s)[64], uint32_t q, uint32_t k) {
  mma_begin();
#pragma unroll
  for (int i = 0; i < D / 16; ++i) wgmma_n128(s, desc(q + 32 * i), desc(k + 32 * i), i);
  mma_end();
}

__device__ __forceinline__ void pv(float (&o)[32], uint32_t (&p)[BN / 16][4], uint32_t v) {
  mma_begin();
#pragma unroll
  for (int i = 0; i < BN / 16; ++i) wgmma_n64(o, p[i], desc(v + 2048 * i));
  mma_end();
}

__device__ __forceinline__ float fast_exp2(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

struct RowState {
  float m0, m1, l0, l1;
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

__device__ __forceinline__ float2 online(float (&s)[64], RowState& r, float c) {
  float m0 = r.m0, m1 = r.m1;
#pragma unroll
  for (int i = 0; i < 64; i += 4) {
    m0 = fmaxf(m0, fmaxf(s[i], s[i + 1]));
    m1 = fmaxf(m1, fmaxf(s[i + 2], s[i + 3]));
  }
  m0 = quad_max(m0);
  m1 = quad_max(m1);
  const float2 f = make_float2(fast_exp2((r.m0 - m0) * c), fast_exp2((r.m1 - m1) * c));
  r.m0 = m0;
  r.m1 = m1;
  const float b0 = -m0 * c, b1 = -m1 * c;
  float l0 = 0.f, l1 = 0.f;
#pragma unroll
  for (int i = 0; i < 64; i += 4) {
    s[i] = fast_exp2(__fmaf_rn(s[i], c, b0));
    s[i + 1] = fast_exp2(__fmaf_rn(s[i + 1], c, b0));
    s[i + 2] = fast_exp2(__fmaf_rn(s[i + 2], c, b1));
    s[i + 3] = fast_exp2(__fmaf_rn(s[i + 3], c, b1));
    l0 += s[i] + s[i + 1];
    l1 += s[i + 2] + s[i + 3];
  }
  r.l0 = r.l0 * f.x + l0;
  r.l1 = r.l1 * f.y + l1;
  return f;
}

__device__ __forceinline__ void convert(uint32_t (&p)[BN / 16][4], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < BN / 16; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p[i][j]) : "f"(s[8 * i + 2 * j + 1]), "f"(s[8 * i + 2 * j]));
}

__global__ void __launch_bounds__(THREADS, 1)
    mha64(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
          const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mo, float* lse, int S) {
  extern __shared__ __align__(1024) char smem_bytes[];
  Shared* sm = reinterpret_cast<Shared*>(smem_bytes);
  const int wg = threadIdx.x >> 7;
  const int head = blockIdx.y;
  const int row0 = blockIdx.x * BM;
  const int n = S / BN;

  if (threadIdx.x == 0) {
    Mbar::init(&sm->q_full, 1);
    for (int i = 0; i < STAGES; ++i) {
      Mbar::init(&sm->k_full[i], 1);
      Mbar::init(&sm->v_full[i], 1);
      Mbar::init(&sm->k_empty[i], WGS);
      Mbar::init(&sm->v_empty[i], WGS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == WGS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x == WGS * 128) {
      Mbar::expect(&sm->q_full, BM * D * 2);
      tma_load(sm->q, &mq, &sm->q_full, row0, head);
      for (int j = 0; j < n; ++j) {
        const int s = j % STAGES;
        const int p = ((j / STAGES) & 1) ^ 1;
        Mbar::wait(&sm->k_empty[s], p);
        Mbar::expect(&sm->k_full[s], BN * D * 2);
        tma_load(sm->k[s], &mk, &sm->k_full[s], j * BN, head);
        Mbar::wait(&sm->v_empty[s], p);
        Mbar::expect(&sm->v_full[s], BN * D * 2);
        tma_load(sm->v[s], &mv, &sm->v_full[s], j * BN, head);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  const int tid = threadIdx.x & 127;
  const int lane = tid & 31;
  const int warp = tid >> 5;
  const float c = 0.125f * 1.4426950408889634f;
  const uint32_t q = sa(sm->q) + wg * M_PER_WG * D * 2;
  float s[64], o[32];
  uint32_t p[BN / 16][4];
  RowState r = {-INFINITY, -INFINITY, 0.f, 0.f};
#pragma unroll
  for (int i = 0; i < 32; ++i) o[i] = 0.f;

  Mbar::wait(&sm->q_full, 0);
  Mbar::wait(&sm->k_full[0], 0);
  qk(s, q, sa(sm->k[0]));
  MMA_WAIT(0);
  if (tid == 0) Mbar::arrive(&sm->k_empty[0]);
  online(s, r, c);
  convert(p, s);
  for (int j = 1; j < n; ++j) {
    const int a = j % STAGES, b = (j - 1) % STAGES;
    Mbar::wait(&sm->k_full[a], (j / STAGES) & 1);
    qk(s, q, sa(sm->k[a]));
    Mbar::wait(&sm->v_full[b], ((j - 1) / STAGES) & 1);
    pv(o, p, sa(sm->v[b]));
    MMA_WAIT(1);
    if (tid == 0) Mbar::arrive(&sm->k_empty[a]);
    const float2 f = online(s, r, c);
    MMA_WAIT(0);
    if (tid == 0) Mbar::arrive(&sm->v_empty[b]);
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
      o[i] *= f.x;
      o[i + 1] *= f.x;
      o[i + 2] *= f.y;
      o[i + 3] *= f.y;
    }
    convert(p, s);
  }
  const int e = (n - 1) % STAGES;
  Mbar::wait(&sm->v_full[e], ((n - 1) / STAGES) & 1);
  pv(o, p, sa(sm->v[e]));
  MMA_WAIT(0);

  const float l0 = quad_sum(r.l0), l1 = quad_sum(r.l1);
  const float i0 = 1.f / l0, i1 = 1.f / l1;
  const int row = row0 + wg * M_PER_WG + warp * 16 + lane / 4;
  if ((lane & 3) == 0) {
    if (row < S) lse[int64_t(head) * S + row] = r.m0 * 0.125f + __logf(l0);
    if (row + 8 < S) lse[int64_t(head) * S + row + 8] = r.m1 * 0.125f + __logf(l1);
  }
  const int rr = warp * 16 + (lane & 15);
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    uint32_t x[4];
    const float* d = o + 4 * j;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x[0]) : "f"(d[1] * i0), "f"(d[0] * i0));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x[1]) : "f"(d[3] * i1), "f"(d[2] * i1));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x[2]) : "f"(d[5] * i0), "f"(d[4] * i0));
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x[3]) : "f"(d[7] * i1), "f"(d[6] * i1));
    const uint32_t to = q + rr * 128 + (((j + (lane >> 4)) ^ (rr & 7)) << 4);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(x[0]), "r"(x[1]),
                 "r"(x[2]), "r"(x[3])
                 : "memory");
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
  if (tid == 0 && row0 + wg * M_PER_WG < S) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];"
                 :
                 : "l"(&mo), "r"(0), "r"(row0 + wg * M_PER_WG), "r"(head), "r"(q)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

CUtensorMap make(void* p, int64_t S, int64_t heads, int rows) {
  CUtensorMap m;
  cuuint64_t size[3] = {cuuint64_t(D), cuuint64_t(S), cuuint64_t(heads)};
  cuuint64_t stride[2] = {cuuint64_t(D * 2), cuuint64_t(S * D * 2)};
  cuuint32_t box[3] = {cuuint32_t(D), cuuint32_t(rows), 1u};
  cuuint32_t one[3] = {1u, 1u, 1u};
  CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p, size, stride, box, one,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "tensor map: " << int(r);
  return m;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), S = Q.size(2);
  if (heads == 0 || S == 0) return;
  if (S % BN) TVM_FFI_THROW(RuntimeError) << "expected S % 128 == 0, found S = " << S;
  CUtensorMap mq = make(Q.data_ptr(), S, heads, BM);
  CUtensorMap mk = make(K.data_ptr(), S, heads, BN);
  CUtensorMap mv = make(V.data_ptr(), S, heads, BN);
  CUtensorMap mo = make(O.data_ptr(), S, heads, M_PER_WG);
  cudaError_t e = cudaFuncSetAttribute(mha64, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(Shared)));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  dim3 grid(unsigned((S + BM - 1) / BM), unsigned(heads));
  mha64<<<grid, THREADS, sizeof(Shared), stream>>>(mq, mk, mv, mo, static_cast<float*>(LSE.data_ptr()), int(S));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha64: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
