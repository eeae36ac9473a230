#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int HD = 96;
constexpr int QT = 64;    // queries of a tile
constexpr int KT = 128;   // keys of a block
constexpr int NSTAGE = 2;
constexpr float L2E = 1.4426950408889634f;

struct alignas(1024) Shared {
  uint8_t k[2][KT * 128];
  uint8_t v[2][KT * 128];
  uint8_t q[NSTAGE][2][QT * 128];
  uint8_t go[NSTAGE][2][QT * 128];  // dO
  uint8_t ds[2][2][64 * 128];       // [buffer][warpgroup][64 keys][64 queries]
  uint8_t dq[2][3][QT * 128];       // [warpgroup][32 columns of FP32]
  float lse[NSTAGE][QT];
  float delta[NSTAGE][QT];
  uint64_t full[NSTAGE], empty[NSTAGE], ready;
};

__device__ __forceinline__ uint32_t sptr(const void* p) {
  uint32_t a;
  asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(a) : "l"(p));
  return a;
}

__device__ __forceinline__ void init(uint64_t& b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sptr(&b)), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t& b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(sptr(&b)) : "memory");
}
__device__ __forceinline__ void expect(uint64_t& b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sptr(&b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(uint64_t& b, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{ .reg .pred p;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(sptr(&b)), "r"(parity)
        : "memory");
  } while (!done);
}

__device__ __forceinline__ void tma_in(void* dst, const CUtensorMap& map, uint64_t& bar, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          sptr(dst)),
      "l"(&map), "r"(x), "r"(y), "r"(sptr(&bar))
      : "memory");
}
__device__ __forceinline__ void bulk_in(void* dst, const float* src, uint32_t bytes, uint64_t& bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sptr(dst)),
               "l"(src), "r"(bytes), "r"(sptr(&bar))
               : "memory");
}
__device__ __forceinline__ void tma_add(const CUtensorMap& map, const void* src, int x, int y) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
               "r"(x), "r"(y), "r"(sptr(src))
               : "memory");
}

__device__ __forceinline__ uint64_t sdesc(const void* p, uint32_t leading = 16) {
  const uint64_t addr = sptr(p);
  return ((addr & 0x3FFFF) >> 4) | ((uint64_t)(leading >> 4) << 16) | ((uint64_t)64 << 32) | ((uint64_t)1 << 62);
}

__device__ __forceinline__ void wg_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wg_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wg_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define Q4(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define Q16(a, i) Q4(a, i), Q4(a, i + 4), Q4(a, i + 8), Q4(a, i + 12)
#define LIST48                                                                                                       \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}"

// 64 keys x 64 queries, over 16 of D.
__device__ __forceinline__ void mma_kq(float (&d)[32], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31}, %32, %33, p, 1, 1, 0, 0; }"
      : Q16(d, 0), Q16(d, 16)
      : "l"(a), "l"(b), "r"((uint32_t)add));
}
// 64 keys x 96, over 16 queries: A in registers.
__device__ __forceinline__ void mma_grad(float (&d)[48], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " LIST48 ", {%48,%49,%50,%51}, %52, 1, 1, 1, 1;"
               : Q16(d, 0), Q16(d, 16), Q16(d, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// 64 queries x 96, over 16 keys: both operands transposed in shared memory.
__device__ __forceinline__ void mma_dq(float (&d)[48], uint64_t a, uint64_t b, bool add) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %50, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 " LIST48 ", %48, %49, p, 1, 1, 1, 1; }"
               : Q16(d, 0), Q16(d, 16), Q16(d, 32)
               : "l"(a), "l"(b), "r"((uint32_t)add));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pk(float a, float b) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
  return r;
}

__global__ void __launch_bounds__(384, 1)
    causal_backward(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
                    const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mgo,
                    const __grid_constant__ CUtensorMap mdq, const float* lse, const float* delta, __nv_bfloat16* dk_out,
                    __nv_bfloat16* dv_out, int seq, float scale) {
  extern __shared__ uint8_t raw[];
  Shared& sh = *reinterpret_cast<Shared*>(raw + (1024 - (sptr(raw) & 1023)) % 1024);
  const int key_block = blockIdx.x * KT;
  const int head = blockIdx.y * seq;
  const int first = key_block / QT, tiles = seq / QT - first;

  if (threadIdx.x == 0) {
    init(sh.ready, 1);
    for (int s = 0; s < NSTAGE; ++s) {
      init(sh.full[s], 1);
      init(sh.empty[s], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  const int wg = threadIdx.x / 128;
  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x % 128 == 0) {
      expect(sh.ready, sizeof(sh.k) + sizeof(sh.v));
      for (int h = 0; h < 2; ++h) {
        tma_in(sh.k[h], mk, sh.ready, 64 * h, head + key_block);
        tma_in(sh.v[h], mv, sh.ready, 64 * h, head + key_block);
      }
      for (int i = 0; i < tiles; ++i) {
        const int s = i % NSTAGE, row = head + (first + i) * QT;
        wait(sh.empty[s], ((i / NSTAGE) & 1) ^ 1);
        expect(sh.full[s], sizeof(sh.q[0]) + sizeof(sh.go[0]) + 2 * QT * sizeof(float));
        for (int h = 0; h < 2; ++h) {
          tma_in(sh.q[s][h], mq, sh.full[s], 64 * h, row);
          tma_in(sh.go[s][h], mgo, sh.full[s], 64 * h, row);
        }
        bulk_in(sh.lse[s], lse + row, QT * 4, sh.full[s]);
        bulk_in(sh.delta[s], delta + row, QT * 4, sh.full[s]);
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int tid = threadIdx.x % 128, lane = tid % 32, warp = tid / 32;
  const int g = lane / 4, c2 = 2 * (lane % 4);
  const int key = key_block + wg * 64 + warp * 16 + g;
  const float k2 = scale * L2E;
  float dk[48], dv[48];
#pragma unroll
  for (int j = 0; j < 48; ++j) dk[j] = dv[j] = 0.f;

  wait(sh.ready, 0);
  for (int i = 0; i < tiles; ++i) {
    const int s = i % NSTAGE;
    wait(sh.full[s], (i / NSTAGE) & 1);
    float p[32], dp[32];
    wg_begin();
#pragma unroll
    for (int k = 0; k < HD / 16; ++k)
      mma_kq(p, sdesc(sh.k[k / 4] + wg * 8192 + (k % 4) * 32), sdesc(sh.q[s][k / 4] + (k % 4) * 32), k != 0);
    wg_end();
#pragma unroll
    for (int k = 0; k < HD / 16; ++k)
      mma_kq(dp, sdesc(sh.v[k / 4] + wg * 8192 + (k % 4) * 32), sdesc(sh.go[s][k / 4] + (k % 4) * 32), k != 0);
    wg_end();
    wg_wait<1>();
    const int query = (first + i) * QT + c2;
    const bool edge = (first + i) * QT < key_block + wg * 64 + 64;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(&sh.lse[s][8 * j + c2]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float x = ex2(p[4 * j + e] * k2 - (e % 2 ? l.y : l.x) * L2E);
        if (edge && query + 8 * j + e % 2 < key + e / 2 * 8) x = 0.f;
        p[4 * j + e] = x;
      }
    }
    uint32_t pf[16], df[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) pf[j] = pk(p[2 * j], p[2 * j + 1]);
    wg_wait<0>();
    wg_begin();
#pragma unroll
    for (int k = 0; k < QT / 16; ++k) mma_grad(dv, pf + 4 * k, sdesc(sh.go[s][0] + k * 2048, QT * 128));
    wg_end();
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 d = *reinterpret_cast<const float2*>(&sh.delta[s][8 * j + c2]);
      df[2 * j] = pk(p[4 * j] * (dp[4 * j] - d.x), p[4 * j + 1] * (dp[4 * j + 1] - d.y));
      df[2 * j + 1] = pk(p[4 * j + 2] * (dp[4 * j + 2] - d.x), p[4 * j + 3] * (dp[4 * j + 3] - d.y));
    }
    uint8_t* ds = sh.ds[i & 1][wg];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int r = warp * 16 + lane % 16;
      const uint32_t at = sptr(ds) + r * 128 + (((2 * k + lane / 16) ^ (r & 7)) << 4);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(df[4 * k]),
                   "r"(df[4 * k + 1]), "r"(df[4 * k + 2]), "r"(df[4 * k + 3])
                   : "memory");
    }
    if (tid == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // staging of dQ is free
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");

    float dq[48];
    wg_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k)
      mma_dq(dq, sdesc(ds + k * 2048), sdesc(sh.k[0] + wg * 8192 + k * 2048, KT * 128), k != 0);
    wg_end();
#pragma unroll
    for (int k = 0; k < QT / 16; ++k) mma_grad(dk, df + 4 * k, sdesc(sh.q[s][0] + k * 2048, QT * 128));
    wg_end();
    wg_wait<1>();
#pragma unroll
    for (int j = 0; j < 12; ++j) {
      const int r = warp * 16 + g, byte = (j % 4) * 32 + c2 * 4;
      uint8_t* box = sh.dq[wg][j / 4] + (((byte >> 4) ^ g) << 4) + (byte & 15);
      *reinterpret_cast<float2*>(box + r * 128) = make_float2(dq[4 * j], dq[4 * j + 1]);
      *reinterpret_cast<float2*>(box + (r + 8) * 128) = make_float2(dq[4 * j + 2], dq[4 * j + 3]);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
    if (tid == 0) {
#pragma unroll
      for (int b = 0; b < 3; ++b) tma_add(mdq, sh.dq[wg][b], 32 * b, head + (first + i) * QT);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    wg_wait<0>();
    if (tid == 0) arrive(sh.empty[s]);
  }
  if (tid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  const int64_t row = head + key;
#pragma unroll
  for (int j = 0; j < 12; ++j) {
    const int64_t at = row * HD + 8 * j + c2;
    *reinterpret_cast<uint32_t*>(dk_out + at) = pk(dk[4 * j] * scale, dk[4 * j + 1] * scale);
    *reinterpret_cast<uint32_t*>(dk_out + at + 8 * HD) = pk(dk[4 * j + 2] * scale, dk[4 * j + 3] * scale);
    *reinterpret_cast<uint32_t*>(dv_out + at) = pk(dv[4 * j], dv[4 * j + 1]);
    *reinterpret_cast<uint32_t*>(dv_out + at + 8 * HD) = pk(dv[4 * j + 2], dv[4 * j + 3]);
  }
}

__global__ void __launch_bounds__(256) prologue(const __nv_bfloat162* o, const __nv_bfloat162* go, float* delta,
                                                float2* dq, int rows) {
  const int row = blockIdx.x * 16 + threadIdx.x / 16, lane = threadIdx.x % 16;
  float sum = 0.f;
  if (row < rows) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int64_t at = row * 48ll + i * 16 + lane;
      const float2 a = __bfloat1622float2(o[at]), b = __bfloat1622float2(go[at]);
      sum += a.x * b.x + a.y * b.y;
      dq[at] = make_float2(0.f, 0.f);
    }
  }
#pragma unroll
  for (int m = 8; m; m /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, m);
  if (row < rows && lane == 0) delta[row] = sum;
}

__global__ void __launch_bounds__(256) epilogue(const float4* acc, uint2* dq, float scale, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (i < n) dq[i] = make_uint2(pk(acc[i].x * scale, acc[i].y * scale), pk(acc[i].z * scale, acc[i].w * scale));
}

template <class T>
CUtensorMap map_of(T* data, int64_t rows, uint32_t box_rows) {
  constexpr bool is_float = sizeof(T) == 4;
  CUtensorMap map;
  cuuint64_t dims[2] = {HD, (cuuint64_t)rows};
  cuuint64_t strides[1] = {HD * sizeof(T)};
  cuuint32_t box[2] = {128 / sizeof(T), box_rows};
  cuuint32_t ones[2] = {1, 1};
  const CUresult r = cuTensorMapEncodeTiled(
      &map, is_float ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, data, dims, strides, box,
      ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
  return map;
}

void must(cudaError_t e) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView dO, tvm::ffi::TensorView L, tvm::ffi::TensorView dQ, tvm::ffi::TensorView dK,
         tvm::ffi::TensorView dV) {
  using bf16 = __nv_bfloat16;
  const int heads = (int)(Q.size(0) * Q.size(1)), seq = (int)Q.size(2), rows = heads * seq;
  if (Q.size(3) != HD || seq % KT) TVM_FFI_THROW(RuntimeError) << "expected D = 96 and S a multiple of 128";
  cudaStream_t stream = (cudaStream_t)TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id);
  float* acc;
  must(cudaMallocAsync(&acc, (size_t)rows * (HD + 1) * sizeof(float), stream));
  float* delta = acc + (size_t)rows * HD;
  prologue<<<(rows + 15) / 16, 256, 0, stream>>>((const __nv_bfloat162*)O.data_ptr(), (const __nv_bfloat162*)dO.data_ptr(),
                                                 delta, (float2*)acc, rows);
  must(cudaGetLastError());
  const float scale = 1.f / sqrtf(96.f);
  const int smem = sizeof(Shared) + 1024;
  must(cudaFuncSetAttribute(causal_backward, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  causal_backward<<<dim3(seq / KT, heads), 384, smem, stream>>>(
      map_of((bf16*)Q.data_ptr(), rows, QT), map_of((bf16*)K.data_ptr(), rows, KT), map_of((bf16*)V.data_ptr(), rows, KT),
      map_of((bf16*)dO.data_ptr(), rows, QT), map_of(acc, rows, QT), (const float*)L.data_ptr(), delta,
      (bf16*)dK.data_ptr(), (bf16*)dV.data_ptr(), seq, scale);
  must(cudaGetLastError());
  const int64_t n = (int64_t)rows * HD / 4;
  epilogue<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>((const float4*)acc, (uint2*)dQ.data_ptr(), scale, n);
  must(cudaGetLastError());
  must(cudaFreeAsync(acc, stream));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
