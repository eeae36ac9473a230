// Causal MHA forward with LSE, D = 128. Paired query tiles, Q in registers, wgmma with A from registers twice.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int HEAD_DIM = 128;
constexpr int ROWS = 128;
constexpr int KEYS = 64;
constexpr int RING = 5;
constexpr int BLOCK = 384;
constexpr uint32_t TILE_BYTES = KEYS * HEAD_DIM * sizeof(__nv_bfloat16);

struct Smem {
  __nv_bfloat16 q[2][ROWS * 64];
  __nv_bfloat16 k[RING][2][KEYS * 64];
  __nv_bfloat16 v[RING][2][KEYS * 64];
  uint64_t q_ready;
  uint64_t q_taken;
  uint64_t ready[RING];
  uint64_t taken[RING];
};

__device__ __forceinline__ uint32_t u32(const void* p) { return __cvta_generic_to_shared(p); }

__device__ __forceinline__ void mbarrier_init(uint64_t* b, unsigned n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(u32(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(u32(b)) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_tx(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(u32(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred complete;\n"
      "LOOP_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
      "@complete bra END_%=;\n"
      "bra LOOP_%=;\n"
      "END_%=:\n"
      "}\n" ::"r"(u32(b)),
      "r"(parity)
      : "memory");
}

__device__ __forceinline__ void tma(void* dst, const CUtensorMap& map, uint64_t* b, int col, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          u32(dst)),
      "l"(&map), "r"(u32(b)), "r"(col), "r"(row), "r"(head)
      : "memory");
}

template <int LBO, int SBO>
__device__ __forceinline__ uint64_t matrix(uint32_t address) {
  constexpr uint64_t fixed = (uint64_t(1) << 62) | (uint64_t(SBO / 16) << 32) | (uint64_t(LBO / 16) << 16);
  return fixed | ((address & 0x3FFFF) >> 4);
}

#define REPEAT8(X) X(0), X(1), X(2), X(3), X(4), X(5), X(6), X(7)
#define REPEAT16(X) REPEAT8(X), X(8), X(9), X(10), X(11), X(12), X(13), X(14), X(15)

// Scores, 64 x 64: the query fragment from registers, keys K-major.
__device__ __forceinline__ void mma_scores(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b, uint32_t keep) {
#define C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.ne.u32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, keep, 1, 1, 0;\n"
      "}\n"
      : REPEAT8(C4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));
#undef C4
}

// Output, 64 x 128: probabilities from registers, values MN-major.
__device__ __forceinline__ void mma_output(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b) {
#define C4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
  asm volatile(
      "{\n"
      ".reg .pred keep;\n"
      "setp.eq.u32 keep, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, keep, 1, 1, 1;\n"
      "}\n"
      : REPEAT16(C4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#undef C4
}

__device__ __forceinline__ uint32_t bf16x2(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}

__device__ __forceinline__ float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

struct Consumer {
  float o[16][4];
  float s[8][4];
  uint32_t p[4][4];
  float m[2], l[2], a[2];

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int i = 0; i < 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] = 0.f;
    m[0] = m[1] = -INFINITY;
    l[0] = l[1] = 0.f;
  }

  __device__ __forceinline__ void mask(int row, int key) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (key + 8 * i + (j & 1) > row + 8 * (j >> 1)) s[i][j] = -INFINITY;
  }

  __device__ __forceinline__ void probabilities(float scale) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 0; i < 8; ++i) top = fmaxf(top, fmaxf(s[i][2 * h], s[i][2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, 2));
      a[h] = exp2_fast((m[h] - top) * scale);
      m[h] = top;
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        s[i][2 * h] = exp2_fast((s[i][2 * h] - top) * scale);
        s[i][2 * h + 1] = exp2_fast((s[i][2 * h + 1] - top) * scale);
        sum += s[i][2 * h] + s[i][2 * h + 1];
      }
      l[h] = l[h] * a[h] + sum;
    }
  }

  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int i = 0; i < 16; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) o[i][j] *= a[j >> 1];
  }

  __device__ __forceinline__ void convert() {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      p[k][0] = bf16x2(s[2 * k][0], s[2 * k][1]);
      p[k][1] = bf16x2(s[2 * k][2], s[2 * k][3]);
      p[k][2] = bf16x2(s[2 * k + 1][0], s[2 * k + 1][1]);
      p[k][3] = bf16x2(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
  }
};

__global__ void __launch_bounds__(BLOCK, 1)
    mha_causal_pairs(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                     const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap o_map,
                     float* __restrict__ lse, int seq, float scale) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  Smem* sm = reinterpret_cast<Smem*>(bytes);
  const int tiles = seq / ROWS;
  const int head = blockIdx.y;
  const int wg = threadIdx.x / 128;
  const int rounds = (2 * (int)blockIdx.x + 1 == tiles) ? 1 : 2;  // the middle tile of an odd count has no partner

  if (threadIdx.x == 0) {
    mbarrier_init(&sm->q_ready, 1);
    mbarrier_init(&sm->q_taken, 2);
#pragma unroll
    for (int i = 0; i < RING; ++i) {
      mbarrier_init(&sm->ready[i], 1);
      mbarrier_init(&sm->taken[i], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      int n = 0;
      for (int round = 0; round < rounds; ++round) {
        const int tile = round == 0 ? tiles - 1 - blockIdx.x : blockIdx.x;
        mbarrier_wait(&sm->q_taken, (round & 1) ^ 1);
        mbarrier_arrive_tx(&sm->q_ready, 2 * ROWS * 64 * 2);
        tma(sm->q[0], q_map, &sm->q_ready, 0, tile * ROWS, head);
        tma(sm->q[1], q_map, &sm->q_ready, 64, tile * ROWS, head);
        const int count = (tile + 1) * (ROWS / KEYS);
        for (int j = 0; j < count; ++j, ++n) {
          const int i = n % RING;
          mbarrier_wait(&sm->taken[i], ((n / RING) & 1) ^ 1);
          mbarrier_arrive_tx(&sm->ready[i], 2 * TILE_BYTES);
          tma(sm->k[i][0], k_map, &sm->ready[i], 0, j * KEYS, head);
          tma(sm->k[i][1], k_map, &sm->ready[i], 64, j * KEYS, head);
          tma(sm->v[i][0], v_map, &sm->ready[i], 0, j * KEYS, head);
          tma(sm->v[i][1], v_map, &sm->ready[i], 64, j * KEYS, head);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int me = wg - 1;
    const int t = threadIdx.x % 128;
    const int lane = t % 32;
    const int warp_row = me * 64 + (t / 32) * 16;
    const float scale_log2 = scale * 1.4426950408889634f;
    Consumer c;
    int n = 0;
    for (int round = 0; round < rounds; ++round) {
      const int tile = round == 0 ? tiles - 1 - blockIdx.x : blockIdx.x;
      const int row = tile * ROWS + warp_row + lane / 4;
      // Query fragments: 8 k-steps of 4 registers.
      uint32_t qf[8][4];
      mbarrier_wait(&sm->q_ready, round & 1);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int r = warp_row + lane % 16;
        const int chunk = (k % 4) * 2 + lane / 16;
        const uint32_t from = u32(sm->q[k / 4]) + r * 128 + ((chunk ^ (r % 8)) * 16);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(qf[k][0]), "=r"(qf[k][1]), "=r"(qf[k][2]), "=r"(qf[k][3])
                     : "r"(from));
      }
      c.reset();
      const int count = (tile + 1) * (ROWS / KEYS);
      // The first warpgroup's rows end 64 keys earlier.
      const int mine = count - (me == 0 ? 1 : 0);
      for (int j = 0; j < count; ++j, ++n) {
        const int i = n % RING;
        mbarrier_wait(&sm->ready[i], (n / RING) & 1);
        if (j < mine) {
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int k = 0; k < 8; ++k)
            mma_scores(c.s, qf[k], matrix<16, 1024>(u32(sm->k[i][k / 4]) + (k % 4) * 32), k != 0);
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          if (j == mine - 1) c.mask(row, j * KEYS + (lane % 4) * 2);
          c.probabilities(scale_log2);
          c.rescale();
          c.convert();
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int k = 0; k < 4; ++k)
            mma_output(c.o, c.p[k], matrix<KEYS * 128, 1024>(u32(sm->v[i][0]) + k * 2048));
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        }
        if (t == 0) mbarrier_arrive(&sm->taken[i]);
      }

      float inverse[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float l = c.l[h];
        l += __shfl_xor_sync(0xffffffff, l, 1);
        l += __shfl_xor_sync(0xffffffff, l, 2);
        inverse[h] = 1.0f / l;
        if (lane % 4 == 0) lse[(size_t)head * seq + row + 8 * h] = c.m[h] * scale + logf(l);
      }
      // Results through this warpgroup's rows of the query tile.
#pragma unroll
      for (int i = 0; i < 16; i += 2) {
        const int r = warp_row + lane % 16;
        const int chunk = i + lane / 16;
        const uint32_t to = u32(sm->q[chunk / 8]) + r * 128 + (((chunk % 8) ^ (r % 8)) * 16);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(bf16x2(c.o[i][0] * inverse[0], c.o[i][1] * inverse[0])),
                     "r"(bf16x2(c.o[i][2] * inverse[1], c.o[i][3] * inverse[1])),
                     "r"(bf16x2(c.o[i + 1][0] * inverse[0], c.o[i + 1][1] * inverse[0])),
                     "r"(bf16x2(c.o[i + 1][2] * inverse[1], c.o[i + 1][3] * inverse[1]))
                     : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      asm volatile("bar.sync %0, 128;" ::"r"(1 + me) : "memory");
      if (t == 0) {
#pragma unroll
        for (int panel = 0; panel < 2; ++panel)
          asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&o_map),
                       "r"(u32(sm->q[panel] + me * 64 * 64)), "r"(panel * 64), "r"(tile * ROWS + me * 64), "r"(head)
                       : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        mbarrier_arrive(&sm->q_taken);
      }
    }
    if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
}

CUtensorMap describe(void* data, int64_t seq, int64_t heads, uint32_t rows) {
  CUtensorMap map;
  const cuuint64_t shape[3] = {HEAD_DIM, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t pitch[2] = {HEAD_DIM * 2, cuuint64_t(seq) * HEAD_DIM * 2};
  const cuuint32_t box[3] = {64, rows, 1};
  const cuuint32_t unit[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, data, shape, pitch, box, unit,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled returned " << int(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1), seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % ROWS != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << ROWS << ", is " << seq;
  const auto q_map = describe(Q.data_ptr(), seq, heads, ROWS);
  const auto k_map = describe(K.data_ptr(), seq, heads, KEYS);
  const auto v_map = describe(V.data_ptr(), seq, heads, KEYS);
  const auto o_map = describe(O.data_ptr(), seq, heads, 64);
  auto error = cudaFuncSetAttribute(mha_causal_pairs, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem));
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
  const int tiles = int(seq / ROWS);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  mha_causal_pairs<<<dim3((tiles + 1) / 2, heads), BLOCK, sizeof(Smem), stream>>>(
      q_map, k_map, v_map, o_map, static_cast<float*>(LSE.data_ptr()), int(seq), 0.08838834764831845f);
  error = cudaGetLastError();
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "mha_causal_pairs: " << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
