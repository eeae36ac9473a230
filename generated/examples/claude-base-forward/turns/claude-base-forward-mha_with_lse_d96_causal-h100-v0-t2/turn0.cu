// Causal MHA forward + LSE, D = 96. Cluster multicast, pairs of tiles from both ends.
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
constexpr int PANELS = 3;
constexpr int BM = 128;
constexpr int BN = 128;
constexpr int STAGES = 3;
constexpr int CLUSTER = 2;
constexpr int THREADS = 384;
constexpr uint32_t PANEL_ELEMENTS = 128 * 32;
constexpr uint32_t TILE_BYTES = PANELS * PANEL_ELEMENTS * 2;

struct alignas(1024) Shared {
  __nv_bfloat16 q[PANELS * PANEL_ELEMENTS];
  __nv_bfloat16 k[STAGES][PANELS * PANEL_ELEMENTS];
  __nv_bfloat16 v[STAGES][PANELS * PANEL_ELEMENTS];
  uint64_t q_full, q_empty;
  uint64_t k_full[STAGES], v_full[STAGES], k_empty[STAGES], v_empty[STAGES];
};

__device__ __forceinline__ void wait(uint64_t* b, uint32_t parity) {
  while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cluster, b, parity)) {
  }
}
__device__ __forceinline__ void expect(uint64_t* b, uint32_t bytes) {
  ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cluster, ptx::space_shared, b, bytes);
}
__device__ __forceinline__ void release(uint64_t* b, uint32_t cta) {
  ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cluster, ptx::space_cluster, ptx::mapa(ptx::space_cluster, b, cta));
}

__device__ __forceinline__ uint64_t desc(const __nv_bfloat16* p, uint32_t lead = 16) {
  const uint64_t a = __cvta_generic_to_shared(p);
  return ((a & 0x3FFFF) >> 4) | (uint64_t(lead / 16) << 16) | (uint64_t(32) << 32) | (uint64_t(2) << 62);
}

#define O8(x, i) \
  "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]), "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])

__device__ __forceinline__ void mma_s(float (&s)[64], uint64_t a, uint64_t b, int acc) {
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
      : O8(s, 0), O8(s, 8), O8(s, 16), O8(s, 24), O8(s, 32), O8(s, 40), O8(s, 48), O8(s, 56)
      : "l"(a), "l"(b), "r"(acc));
}
__device__ __forceinline__ void mma_o(float (&o)[48], const uint32_t (&p)[4], uint64_t b) {
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
      : O8(o, 0), O8(o, 8), O8(o, 16), O8(o, 24), O8(o, 32), O8(o, 40)
      : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(b));
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ uint32_t pack(float lo, float hi) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
  return *reinterpret_cast<const uint32_t*>(&v);
}

struct Plan {
  int pairs;
  __device__ int rounds(int i) const { return 2 * i + 1 == pairs ? 1 : 2; }
  __device__ int pair(int i, int round) const { return round == 0 ? pairs - 1 - i : i; }
};

__global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    causal(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
           const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq) {
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared& sm = *reinterpret_cast<Shared*>(raw);
  const uint32_t rank = ptx::get_sreg_cluster_ctarank();
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int index = blockIdx.x / CLUSTER;
  const Plan plan{seq / (CLUSTER * BM)};

  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&sm.q_full, 1);
    ptx::mbarrier_init(&sm.q_empty, 2);
    for (int i = 0; i < STAGES; ++i) {
      ptx::mbarrier_init(&sm.k_full[i], 1);
      ptx::mbarrier_init(&sm.v_full[i], 1);
      ptx::mbarrier_init(&sm.k_empty[i], 2 * CLUSTER);
      ptx::mbarrier_init(&sm.v_empty[i], 2 * CLUSTER);
    }
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);

  if (wg == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 256) {
      // Half of the rows of each panel per block, to both blocks.
      const auto share = [&](__nv_bfloat16* to, const CUtensorMap& map, uint64_t* bar, int row) {
        for (int p = 0; p < PANELS; ++p) {
          const int32_t at[3] = {p * 32, row + static_cast<int>(rank) * 64, head};
          ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to + p * PANEL_ELEMENTS + rank * 64 * 32, &map,
                                    at, bar, uint16_t((1 << CLUSTER) - 1));
        }
      };
      int n = 0;
      for (int r = 0; r < plan.rounds(index); ++r) {
        const int pair = plan.pair(index, r);
        const int tile = pair * CLUSTER + rank;
        if (r > 0) wait(&sm.q_empty, 0);
        expect(&sm.q_full, TILE_BYTES);
        for (int p = 0; p < PANELS; ++p) {
          for (int half = 0; half < 2; ++half) {
            const int32_t at[3] = {p * 32, tile * BM + half * 64, head};
            ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global,
                                      sm.q + p * PANEL_ELEMENTS + half * 64 * 32, &mq, at, &sm.q_full);
          }
        }
        for (int j = pair * CLUSTER + 1; j >= 0; --j, ++n) {
          const int s = n % STAGES;
          const uint32_t parity = (n / STAGES & 1) ^ 1;
          wait(&sm.k_empty[s], parity);
          expect(&sm.k_full[s], TILE_BYTES);
          share(sm.k[s], mk, &sm.k_full[s], j * BN);
          wait(&sm.v_empty[s], parity);
          expect(&sm.v_full[s], TILE_BYTES);
          share(sm.v[s], mv, &sm.v_full[s], j * BN);
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const int tid = threadIdx.x % 128;
    const int lane = tid % 32;
    const int local = wg * 64 + tid / 32 * 16 + lane / 4;
    const float scale = 0.10206207261596577f;
    const float c = scale * 1.4426950408889634f;
    const __nv_bfloat16* q = sm.q + wg * 64 * 32;
    int n = 0;
    for (int r = 0; r < plan.rounds(index); ++r) {
      const int pair = plan.pair(index, r);
      const int tile = pair * CLUSTER + static_cast<int>(rank);
      float s[64], o[48];
      float m[2] = {-INFINITY, -INFINITY}, l[2] = {0.f, 0.f};
#pragma unroll
      for (int i = 0; i < 48; ++i) o[i] = 0.f;
      wait(&sm.q_full, r);
      for (int j = pair * CLUSTER + 1; j >= 0; --j, ++n) {
        const int st = n % STAGES;
        const uint32_t parity = n / STAGES & 1;
        wait(&sm.k_full[st], parity);
        if (j <= tile) {
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int i = 0; i < D / 16; ++i) {
            const uint32_t at = i / 2 * PANEL_ELEMENTS + i % 2 * 16;
            mma_s(s, desc(q + at), desc(sm.k[st] + at), i);
          }
          asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
        }
        if (tid < CLUSTER) release(&sm.k_empty[st], tid);
        uint32_t p[8][4];
        if (j <= tile) {
          if (j == tile) {
#pragma unroll
            for (int i = 0; i < 64; ++i)
              if (i / 4 * 8 + lane % 4 * 2 + i % 2 > local + i / 2 % 2 * 8) s[i] = -INFINITY;
          }
          float f[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            float top = m[h];
#pragma unroll
            for (int i = 2 * h; i < 64; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            f[h] = ex2((m[h] - top) * c);
            m[h] = top;
            l[h] *= f[h];
#pragma unroll
            for (int i = 2 * h; i < 64; i += 4) {
              s[i] = ex2(fmaf(s[i], c, -top * c));
              s[i + 1] = ex2(fmaf(s[i + 1], c, -top * c));
              l[h] += s[i] + s[i + 1];
            }
          }
#pragma unroll
          for (int i = 0; i < 48; ++i) o[i] *= f[i / 2 % 2];
#pragma unroll
          for (int i = 0; i < 32; ++i) p[i / 4][i % 4] = pack(s[2 * i], s[2 * i + 1]);
        }
        wait(&sm.v_full[st], parity);
        if (j <= tile) {
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int i = 0; i < BN / 16; ++i) mma_o(o, p[i], desc(sm.v[st] + i * 16 * 32, PANEL_ELEMENTS * 2));
          asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
        }
        if (tid < CLUSTER) release(&sm.v_empty[st], tid);
      }
      if (tid == 0) ptx::mbarrier_arrive(&sm.q_empty);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float sum = l[h];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        const float inverse = 1.f / sum;
        const int64_t row = int64_t(head) * seq + tile * BM + local + 8 * h;
        if (lane % 4 == 0) lse[row] = m[h] * scale + logf(sum);
        uint32_t* to = reinterpret_cast<uint32_t*>(out + row * D) + lane % 4;
#pragma unroll
        for (int i = 0; i < 12; ++i) to[4 * i] = pack(o[4 * i + 2 * h] * inverse, o[4 * i + 2 * h + 1] * inverse);
      }
    }
  }
  ptx::barrier_cluster_arrive(ptx::sem_release);
  ptx::barrier_cluster_wait(ptx::sem_acquire);
}

CUtensorMap encode(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {D, cuuint64_t(seq), cuuint64_t(heads)};
  const cuuint64_t strides[2] = {D * 2, cuuint64_t(seq) * D * 2};
  const cuuint32_t box[3] = {32, 64, 1};
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
  if (seq % (CLUSTER * BM)) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 256, found " << seq;
  const CUtensorMap mq = encode(Q, seq, heads), mk = encode(K, seq, heads), mv = encode(V, seq, heads);
  cudaError_t e = cudaFuncSetAttribute(causal, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  const int pairs = int(seq / (CLUSTER * BM));
  const dim3 grid((pairs + 1) / 2 * CLUSTER, unsigned(heads));
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  causal<<<grid, THREADS, sizeof(Shared), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                    static_cast<float*>(LSE.data_ptr()), int(seq));
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "causal: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
