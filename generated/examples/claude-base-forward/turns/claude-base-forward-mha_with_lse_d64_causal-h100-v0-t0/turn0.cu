// Causal MHA forward + LSE, D = 64. Persistent with a dynamic tile scheduler; TMA + mbarrier + wgmma.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdint>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int D = 64;
constexpr int kWgs = 3;
constexpr int BM = 64 * kWgs;
constexpr int BN = 128;
constexpr int kStages = 4;
constexpr int kThreads = 128 * (1 + kWgs);
constexpr uint32_t kTile = BN * D * 2;

__device__ unsigned int next_item;

struct Smem {
  alignas(1024) unsigned char q[BM * D * 2];
  alignas(1024) unsigned char k[kStages][kTile];
  alignas(1024) unsigned char v[kStages][kTile];
  alignas(16) int item[2];
  alignas(8) uint64_t item_full[2];
  uint64_t item_empty[2];
  uint64_t q_full, q_empty;
  uint64_t k_full[kStages], k_empty[kStages];
  uint64_t v_full[kStages], v_empty[kStages];
};

struct Problem {
  float* lse;
  unsigned int* counter;
  int seq, heads, q_tiles, items;
};

__device__ __forceinline__ uint32_t smem_ptr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void bar_init(uint64_t& b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_ptr(&b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint64_t& b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_ptr(&b)) : "memory");
}
__device__ __forceinline__ void bar_expect(uint64_t& b, uint32_t n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_ptr(&b)), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_wait(uint64_t& b, uint32_t parity) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "again_%=:\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n\t"
      "@!p bra again_%=;\n\t"
      "}" ::"r"(smem_ptr(&b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void tma(void* to, const CUtensorMap* map, uint64_t& b, int row, int head) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {0, %2, %3}], [%4];" ::"r"(
          smem_ptr(to)),
      "l"(map), "r"(row), "r"(head), "r"(smem_ptr(&b))
      : "memory");
}

__device__ __forceinline__ uint64_t desc(uint32_t a) {
  return (uint64_t)((a >> 4) & 0x3FFF) | (uint64_t)1 << 16 | (uint64_t)64 << 32 | (uint64_t)1 << 62;
}

#define OPS4(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define OPS32(x, i)                                                                                          \
  OPS4(x, i), OPS4(x, i + 4), OPS4(x, i + 8), OPS4(x, i + 12), OPS4(x, i + 16), OPS4(x, i + 20), OPS4(x, i + 24), \
      OPS4(x, i + 28)

__device__ __forceinline__ void mma_scores(float (&s)[64], uint64_t a, uint64_t b, int more) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "setp.ne.b32 p, %66, 0;\n\t"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, 0;\n\t"
      "}"
      : OPS32(s, 0), OPS32(s, 32)
      : "l"(a), "l"(b), "r"(more));
}

__device__ __forceinline__ void mma_output(float (&o)[32], const uint32_t* a, uint64_t b) {
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mov.pred p, 1;\n\t"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n\t"
      "}"
      : OPS32(o, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void fence_mma() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_mma() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_mma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ float exp2f_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Item -> query tile and head: the longest tiles of all heads come first.
__device__ __forceinline__ void split(int item, const Problem& pr, int& tile, int& head) {
  tile = pr.q_tiles - 1 - item / pr.heads;
  head = item % pr.heads;
}
__device__ __forceinline__ int key_tiles(int tile, int seq) {
  return min((tile + 1) * BM + BN - 1, seq + BN - 1) / BN;
}

__device__ void produce(Smem& sm, const CUtensorMap* mq, const CUtensorMap* mk, const CUtensorMap* mv,
                        const Problem& pr) {
  int n = 0;
  for (int i = 0;; ++i) {
    const int item = atomicAdd(pr.counter, 1u);
    const int slot = i & 1;
    bar_wait(sm.item_empty[slot], ((i >> 1) & 1) ^ 1);
    sm.item[slot] = item < pr.items ? item : -1;
    bar_arrive(sm.item_full[slot]);
    if (item >= pr.items) return;
    int tile, head;
    split(item, pr, tile, head);
    bar_wait(sm.q_empty, (i & 1) ^ 1);
    bar_expect(sm.q_full, BM * D * 2);
    tma(sm.q, mq, sm.q_full, tile * BM, head);
    for (int j = key_tiles(tile, pr.seq) - 1; j >= 0; --j, ++n) {
      const int s = n % kStages;
      const uint32_t parity = ((n / kStages) & 1) ^ 1;
      bar_wait(sm.k_empty[s], parity);
      bar_expect(sm.k_full[s], kTile);
      tma(sm.k[s], mk, sm.k_full[s], j * BN, head);
      bar_wait(sm.v_empty[s], parity);
      bar_expect(sm.v_full[s], kTile);
      tma(sm.v[s], mv, sm.v_full[s], j * BN, head);
    }
  }
}

struct Fragment {
  float s[64];
  float o[32];
  uint32_t p[32];
  float m[2], l[2], f[2];

  __device__ __forceinline__ void start() {
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] = 0.f;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      m[h] = -INFINITY;
      l[h] = 0.f;
    }
  }
  __device__ __forceinline__ void qk(uint32_t q, uint32_t k) {
    fence_mma();
#pragma unroll
    for (int i = 0; i < 4; ++i) mma_scores(s, desc(q + i * 32), desc(k + i * 32), i);
    commit_mma();
  }
  __device__ __forceinline__ void pv(uint32_t v) {
    fence_mma();
#pragma unroll
    for (int i = 0; i < 8; ++i) mma_output(o, p + 4 * i, desc(v + i * 2048));
    commit_mma();
  }
  __device__ __forceinline__ void softmax(float c, bool masked, int row, int key) {
    if (masked) {
#pragma unroll
      for (int i = 0; i < 64; ++i)
        if (key + (i >> 2) * 8 + (i & 1) > row + ((i >> 1) & 1) * 8) s[i] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 0; i < 16; ++i) top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float shift = top == -INFINITY ? 0.f : top * c;
      f[h] = exp2f_fast(m[h] * c - shift);
      m[h] = top;
      float sum = 0.f;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int e = 4 * i + 2 * h;
        s[e] = exp2f_fast(s[e] * c - shift);
        s[e + 1] = exp2f_fast(s[e + 1] * c - shift);
        sum += s[e] + s[e + 1];
      }
      l[h] = l[h] * f[h] + sum;
    }
  }
  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int i = 0; i < 32; ++i) o[i] *= f[(i >> 1) & 1];
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < 32; ++i)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(p[i]) : "f"(s[2 * i + 1]), "f"(s[2 * i]));
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    attention(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
              const __grid_constant__ CUtensorMap mv, const __grid_constant__ CUtensorMap mo,
              const __grid_constant__ Problem pr) {
  extern __shared__ __align__(1024) unsigned char buffer[];
  Smem& sm = *reinterpret_cast<Smem*>(buffer);
  const int wg = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    bar_init(sm.q_full, 1);
    bar_init(sm.q_empty, kWgs);
    for (int i = 0; i < 2; ++i) {
      bar_init(sm.item_full[i], 1);
      bar_init(sm.item_empty[i], kWgs * 128);
    }
    for (int i = 0; i < kStages; ++i) {
      bar_init(sm.k_full[i], 1);
      bar_init(sm.v_full[i], 1);
      bar_init(sm.k_empty[i], kWgs);
      bar_init(sm.v_empty[i], kWgs);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == kWgs) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
    if (threadIdx.x % 128 == 0) produce(sm, &mq, &mk, &mv, pr);
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const int local = wg * 64 + (t / 32) * 16;
  const float scale = 0.125f;
  const float c = scale * 1.44269504088896f;
  const uint32_t q = smem_ptr(sm.q) + wg * 64 * 128;
  Fragment x;
  int kn = 0, vn = 0;
  for (int i = 0;; ++i) {
    bar_wait(sm.item_full[i & 1], (i >> 1) & 1);
    const int item = sm.item[i & 1];
    bar_arrive(sm.item_empty[i & 1]);
    if (item < 0) break;
    int tile, head;
    split(item, pr, tile, head);
    const int row = tile * BM + local + lane / 4;
    const int first_row = tile * BM + wg * 64;
    const int blocks = key_tiles(tile, pr.seq);
    x.start();
    bar_wait(sm.q_full, i & 1);
    int j = blocks - 1;
    bar_wait(sm.k_full[kn % kStages], (kn / kStages) & 1);
    x.qk(q, smem_ptr(sm.k[kn % kStages]));
    wait_mma<0>();
    if (t == 0) bar_arrive(sm.k_empty[kn % kStages]);
    ++kn;
    x.softmax(c, true, row, j * BN + (lane % 4) * 2);
    x.pack();
    for (--j; j >= 0; --j) {
      bar_wait(sm.k_full[kn % kStages], (kn / kStages) & 1);
      x.qk(q, smem_ptr(sm.k[kn % kStages]));
      bar_wait(sm.v_full[vn % kStages], (vn / kStages) & 1);
      x.pv(smem_ptr(sm.v[vn % kStages]));
      wait_mma<1>();
      if (t == 0) bar_arrive(sm.k_empty[kn % kStages]);
      ++kn;
      x.softmax(c, j * BN + BN - 1 > first_row, row, j * BN + (lane % 4) * 2);
      wait_mma<0>();
      if (t == 0) bar_arrive(sm.v_empty[vn % kStages]);
      ++vn;
      x.rescale();
      x.pack();
    }
    bar_wait(sm.v_full[vn % kStages], (vn / kStages) & 1);
    x.pv(smem_ptr(sm.v[vn % kStages]));
    wait_mma<0>();
    if (t == 0) bar_arrive(sm.v_empty[vn % kStages]);
    ++vn;

    float inv[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float l = x.l[h];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      inv[h] = 1.f / l;
      const int r = row + 8 * h;
      if (lane % 4 == 0 && r < pr.seq) pr.lse[(int64_t)head * pr.seq + r] = x.m[h] * scale + logf(l);
    }
    const int rr = (t / 32) * 16 + lane % 16;
#pragma unroll
    for (int b = 0; b < 8; b += 2) {
      uint32_t w[4];
#pragma unroll
      for (int e = 0; e < 4; ++e)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
            : "=r"(w[e])
            : "f"(x.o[4 * b + 2 * e + 1] * inv[e & 1]), "f"(x.o[4 * b + 2 * e] * inv[e & 1]));
      const uint32_t to = q + rr * 128 + (((b + lane / 16) ^ (rr & 7)) * 16);
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(w[0]), "r"(w[1]),
                   "r"(w[2]), "r"(w[3])
                   : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(wg + 1) : "memory");
    if (t == 0) {
      if (first_row < pr.seq)
        asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {0, %1, %2}], [%3];" ::"l"(&mo),
                     "r"(first_row), "r"(head), "r"(q)
                     : "memory");
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      bar_arrive(sm.q_empty);
    }
  }
  if (t == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

void encode(CUtensorMap& m, const tvm::ffi::TensorView& t, int64_t seq, int64_t heads, int rows) {
  cuuint64_t dims[3] = {(cuuint64_t)D, (cuuint64_t)seq, (cuuint64_t)heads};
  cuuint64_t pitch[2] = {(cuuint64_t)D * 2, (cuuint64_t)seq * D * 2};
  cuuint32_t box[3] = {(cuuint32_t)D, (cuuint32_t)rows, 1};
  cuuint32_t ones[3] = {1, 1, 1};
  CUresult r = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, pitch, box, ones,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << (int)r;
}

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << what << ": " << cudaGetErrorString(e);
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  Problem pr;
  pr.heads = (int)(Q.size(0) * Q.size(1));
  pr.seq = (int)Q.size(2);
  if (pr.heads == 0 || pr.seq == 0) return;
  if (pr.seq % BN != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of " << BN;
  pr.q_tiles = (pr.seq + BM - 1) / BM;
  pr.items = pr.q_tiles * pr.heads;
  pr.lse = static_cast<float*>(LSE.data_ptr());
  void* counter = nullptr;
  check(cudaGetSymbolAddress(&counter, next_item), "cudaGetSymbolAddress");
  pr.counter = static_cast<unsigned int*>(counter);
  CUtensorMap mq, mk, mv, mo;
  encode(mq, Q, pr.seq, pr.heads, BM);
  encode(mk, K, pr.seq, pr.heads, BN);
  encode(mv, V, pr.seq, pr.heads, BN);
  encode(mo, O, pr.seq, pr.heads, 64);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  check(cudaFuncSetAttribute(attention, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Smem)), "attribute");
  check(cudaMemsetAsync(counter, 0, sizeof(unsigned int), stream), "memset");
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, Q.device().device_id), "device");
  attention<<<std::min(sms, pr.items), kThreads, sizeof(Smem), stream>>>(mq, mk, mv, mo, pr);
  check(cudaGetLastError(), "attention");
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
