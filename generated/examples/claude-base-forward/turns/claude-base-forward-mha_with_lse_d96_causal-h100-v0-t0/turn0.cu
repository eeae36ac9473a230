// Causal MHA forward + LSE, D = 96. Q in registers, paired query tiles, TMA ring, wgmma.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kDim = 96;
constexpr int kSteps = kDim / 16;
constexpr int kPanels = 3;
constexpr int kRows = 128;
constexpr int kKeys = 128;
constexpr int kRing = 3;
constexpr int kThreads = 384;
constexpr int kPanelBytes = 128 * 64;
constexpr int kTileBytes = kPanels * kPanelBytes;

struct alignas(1024) Storage {
  uint8_t q[kTileBytes];
  uint8_t k[kRing][kTileBytes];
  uint8_t v[kRing][kTileBytes];
  uint64_t q_full, q_empty;
  uint64_t k_full[kRing], k_empty[kRing], v_full[kRing], v_empty[kRing];
};

__device__ __forceinline__ uint32_t addr(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

namespace mbar {
__device__ __forceinline__ void init(uint64_t* b, uint32_t n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(addr(b)), "r"(n) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(addr(b)) : "memory");
}
__device__ __forceinline__ void expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(addr(b)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n"
      "  .reg .pred p;\n"
      "  spin_%=:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "  @!p bra spin_%=;\n"
      "}\n" ::"r"(addr(b)),
      "r"(parity)
      : "memory");
}
}  // namespace mbar

struct Cursor {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ Cursor& operator++() {
    if (++slot == kRing) {
      slot = 0;
      parity ^= 1;
    }
    return *this;
  }
};

__device__ __forceinline__ void load_tile(uint8_t* to, const CUtensorMap* map, uint64_t* bar, int row, int head) {
#pragma unroll
  for (int p = 0; p < kPanels; ++p)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], "
        "[%5];" ::"r"(addr(to + p * kPanelBytes)),
        "l"(map), "r"(p * 32), "r"(row), "r"(head), "r"(addr(bar))
        : "memory");
}

__device__ __forceinline__ uint64_t make_desc(uint32_t a, uint32_t lbo) {
  return (uint64_t(2) << 62) | (uint64_t(512 / 16) << 32) | (uint64_t(lbo / 16) << 16) | ((a & 0x3FFFF) / 16);
}

#define E2(x, i) "+f"(x[i]), "+f"(x[i + 1])
#define E8(x, i) E2(x, i), E2(x, i + 2), E2(x, i + 4), E2(x, i + 6)
#define E32(x, i) E8(x, i), E8(x, i + 8), E8(x, i + 16), E8(x, i + 24)

template <bool kFirst>
__device__ __forceinline__ void mma_qk(float (&s)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, 0;\n"
      "}\n"
      : E32(s, 0), E32(s, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFirst ? 1 : 0));
}

__device__ __forceinline__ void mma_pv(float (&o)[48], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.eq.u32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
      "{%48, %49, %50, %51}, %52, p, 1, 1, 1;\n"
      "}\n"
      : E32(o, 0), E8(o, 32), E8(o, 40)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

template <int kLeft>
__device__ __forceinline__ void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

struct Attention {
  float s[64];
  float o[48];
  uint32_t q[kSteps][4];
  uint32_t p[kKeys / 16][4];
  float m[2], l[2], a[2];

  __device__ __forceinline__ void load_q(uint32_t base, int warp_row, int lane) {
    const int row = warp_row + lane % 16;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int chunk = (i % 2) * 2 + lane / 16;  // 16-byte chunk of the panel's row
      // 64-byte swizzle: chunk index xor bits 1 and 2 of the row.
      const uint32_t from = base + (i / 2) * kPanelBytes + row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4);
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(q[i][0]), "=r"(q[i][1]), "=r"(q[i][2]), "=r"(q[i][3])
                   : "r"(from)
                   : "memory");
    }
  }
  __device__ __forceinline__ void reset() {
    for (float& x : o) x = 0.f;
    m[0] = m[1] = -INFINITY;
    l[0] = l[1] = 0.f;
  }
  __device__ __forceinline__ void scores(uint32_t k) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    mma_qk<true>(s, q[0], make_desc(k, 16));
#pragma unroll
    for (int i = 1; i < kSteps; ++i) mma_qk<false>(s, q[i], make_desc(k + (i / 2) * kPanelBytes + (i % 2) * 32, 16));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void output(uint32_t v) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) mma_pv(o, p[i], make_desc(v + i * 16 * 64, kPanelBytes));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void mask(int row_in_tile, int lane) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int key = i / 4 * 8 + lane % 4 * 2 + i % 2;
      if (key > row_in_tile + i / 2 % 2 * 8) s[i] = -INFINITY;
    }
  }
  __device__ __forceinline__ void softmax(float c) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = m[h];
#pragma unroll
      for (int i = 2 * h; i < 64; i += 4) top = fmaxf(fmaxf(s[i], s[i + 1]), top);
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      a[h] = ex2((m[h] - top) * c);
      m[h] = top;
      const float b = top * c;
      float sum = 0.f;
#pragma unroll
      for (int i = 2 * h; i < 64; i += 4) {
        s[i] = ex2(fmaf(s[i], c, -b));
        s[i + 1] = ex2(fmaf(s[i + 1], c, -b));
        sum += s[i] + s[i + 1];
      }
      l[h] = l[h] * a[h] + sum;
    }
  }
  __device__ __forceinline__ void rescale() {
#pragma unroll
    for (int i = 0; i < 48; ++i) o[i] *= a[i / 2 % 2];
  }
  __device__ __forceinline__ void pack() {
#pragma unroll
    for (int i = 0; i < 32; ++i) p[i / 4][i % 4] = bf16x2(s[2 * i], s[2 * i + 1]);
  }
  static __device__ __forceinline__ float ex2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static __device__ __forceinline__ uint32_t bf16x2(float lo, float hi) {
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
  }
};

__global__ void __launch_bounds__(kThreads, 1)
    causal96(const __grid_constant__ CUtensorMap mq, const __grid_constant__ CUtensorMap mk,
             const __grid_constant__ CUtensorMap mv, __nv_bfloat16* __restrict__ out, float* __restrict__ lse, int seq,
             float scale) {
  extern __shared__ __align__(1024) uint8_t raw[];
  Storage& st = *reinterpret_cast<Storage*>(raw);
  const int wg = threadIdx.x / 128;
  const int head = blockIdx.y;
  const int tiles = seq / kRows;
  const int low = blockIdx.x;
  const int high = tiles - 1 - low;
  const int rounds = low == high ? 1 : 2;

  if (threadIdx.x == 0) {
    mbar::init(&st.q_full, 1);
    mbar::init(&st.q_empty, 2 * 128);
    for (int i = 0; i < kRing; ++i) {
      mbar::init(&st.k_full[i], 1);
      mbar::init(&st.v_full[i], 1);
      mbar::init(&st.k_empty[i], 2);
      mbar::init(&st.v_empty[i], 2);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  if (wg == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) {
      Cursor c;
      for (int r = 0; r < rounds; ++r) {
        const int tile = r == 0 ? high : low;
        if (r > 0) mbar::wait(&st.q_empty, 0);
        mbar::expect(&st.q_full, kTileBytes);
        load_tile(st.q, &mq, &st.q_full, tile * kRows, head);
        for (int j = tile; j >= 0; --j, ++c) {
          mbar::wait(&st.k_empty[c.slot], c.parity ^ 1);
          mbar::expect(&st.k_full[c.slot], kTileBytes);
          load_tile(st.k[c.slot], &mk, &st.k_full[c.slot], j * kKeys, head);
          mbar::wait(&st.v_empty[c.slot], c.parity ^ 1);
          mbar::expect(&st.v_full[c.slot], kTileBytes);
          load_tile(st.v[c.slot], &mv, &st.v_full[c.slot], j * kKeys, head);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int t = threadIdx.x % 128;
  const int lane = t % 32;
  const int warp_row = (wg - 1) * 64 + t / 32 * 16;
  const int mine = warp_row + lane / 4;
  const float c = scale * 1.4426950408889634f;
  Attention x;
  Cursor kc, vc;
  for (int r = 0; r < rounds; ++r) {
    const int tile = r == 0 ? high : low;
    x.reset();
    mbar::wait(&st.q_full, r);
    x.load_q(addr(st.q), warp_row, lane);
    mbar::arrive(&st.q_empty);

    mbar::wait(&st.k_full[kc.slot], kc.parity);
    x.scores(addr(st.k[kc.slot]));
    mma_wait<0>();
    if (t == 0) mbar::arrive(&st.k_empty[kc.slot]);
    ++kc;
    x.mask(mine, lane);
    x.softmax(c);
    x.pack();
    for (int j = tile - 1; j >= 0; --j) {
      mbar::wait(&st.k_full[kc.slot], kc.parity);
      x.scores(addr(st.k[kc.slot]));
      mbar::wait(&st.v_full[vc.slot], vc.parity);
      x.output(addr(st.v[vc.slot]));
      mma_wait<1>();
      if (t == 0) mbar::arrive(&st.k_empty[kc.slot]);
      ++kc;
      x.softmax(c);
      mma_wait<0>();
      if (t == 0) mbar::arrive(&st.v_empty[vc.slot]);
      ++vc;
      x.rescale();
      x.pack();
    }
    mbar::wait(&st.v_full[vc.slot], vc.parity);
    x.output(addr(st.v[vc.slot]));
    mma_wait<0>();
    if (t == 0) mbar::arrive(&st.v_empty[vc.slot]);
    ++vc;

#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = x.l[h];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      const float inverse = 1.f / sum;
      const int64_t row = int64_t(head) * seq + tile * kRows + mine + 8 * h;
      if (lane % 4 == 0) lse[row] = x.m[h] * scale + logf(sum);
      uint32_t* to = reinterpret_cast<uint32_t*>(out + row * kDim) + lane % 4;
#pragma unroll
      for (int i = 0; i < 12; ++i)
        to[4 * i] = Attention::bf16x2(x.o[4 * i + 2 * h] * inverse, x.o[4 * i + 2 * h + 1] * inverse);
    }
  }
}

CUtensorMap map_of(const tvm::ffi::TensorView& t, int64_t seq, int64_t heads) {
  CUtensorMap map;
  const cuuint64_t dims[3] = {kDim, (cuuint64_t)seq, (cuuint64_t)heads};
  const cuuint64_t strides[2] = {kDim * 2, (cuuint64_t)seq * kDim * 2};
  const cuuint32_t box[3] = {32, 128, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUresult r = cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, t.data_ptr(), dims, strides, box,
                                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_64B,
                                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled: " << static_cast<int>(r);
  return map;
}

void run(tvm::ffi::TensorView Q, tvm::ffi::TensorView K, tvm::ffi::TensorView V, tvm::ffi::TensorView O,
         tvm::ffi::TensorView LSE) {
  const int64_t heads = Q.size(0) * Q.size(1);
  const int64_t seq = Q.size(2);
  if (heads == 0 || seq == 0) return;
  if (seq % kRows != 0) TVM_FFI_THROW(RuntimeError) << "S must be a multiple of 128, found " << seq;
  const CUtensorMap mq = map_of(Q, seq, heads);
  const CUtensorMap mk = map_of(K, seq, heads);
  const CUtensorMap mv = map_of(V, seq, heads);
  cudaError_t e = cudaFuncSetAttribute(causal96, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Storage));
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "shared memory: " << cudaGetErrorString(e);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(Q.device().device_type, Q.device().device_id));
  const dim3 grid(static_cast<unsigned>((seq / kRows + 1) / 2), static_cast<unsigned>(heads));
  causal96<<<grid, kThreads, sizeof(Storage), stream>>>(mq, mk, mv, static_cast<__nv_bfloat16*>(O.data_ptr()),
                                                        static_cast<float*>(LSE.data_ptr()), static_cast<int>(seq),
                                                        0.10206207261596577f);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "causal96: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
