// C = A B^T for bf16, fp32 accumulation. Persistent ping-pong: the warpgroups alternate tiles.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace {

constexpr int kN = 7168;
constexpr int kK = 5120;
constexpr int TM = 128;
constexpr int TN = 128;
constexpr int TK = 64;
constexpr int STAGES = 5;
constexpr int THREADS = 384;
constexpr int A_BYTES = TM * TK * 2;
constexpr int B_BYTES = TN * TK * 2;
constexpr int STAGE = A_BYTES + B_BYTES;
constexpr int OUT_BYTES = TM * TN * 2;
constexpr int K_STEPS = kK / TK;
constexpr int N_TILES = kN / TN;
constexpr int GROUP = 16;

struct alignas(1024) Smem {
  uint8_t stages[STAGES][STAGE];
  uint8_t out[2][OUT_BYTES];
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
  uint64_t order[2];
};

__device__ inline uint32_t s32(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void bar_init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(s32(bar)), "r"(count));
}

__device__ inline void bar_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(s32(bar)) : "memory");
}

__device__ inline void bar_expect(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(s32(bar)), "r"(bytes) : "memory");
}

__device__ inline bool bar_try(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n\t.reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n\t"
      "selp.u32 %0, 1, 0, p;\n\t}"
      : "=r"(done)
      : "r"(s32(bar)), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ inline void bar_wait(uint64_t* bar, uint32_t parity) {
  while (!bar_try(bar, parity)) {
  }
}

__device__ inline void load_2d(void* dst, const CUtensorMap* map, uint64_t* bar, int c0, int c1, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(s32(dst)),
      "l"(map), "r"(c0), "r"(c1), "r"(s32(bar)), "l"(policy)
      : "memory");
}

__device__ inline void store_2d(const CUtensorMap* map, const void* src, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(c0),
               "r"(c1), "r"(s32(src))
               : "memory");
}

__device__ inline uint64_t descriptor(const void* p) {
  const uint64_t addr = s32(p);
  return ((addr >> 4) & 0x3FFF) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

__device__ inline void mma_64x128x16(float (&c)[64], uint64_t da, uint64_t db, int scale_d) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16\n"
      "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15,\n"
      " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31,\n"
      " %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47,\n"
      " %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63},\n"
      " %64, %65, p, 1, 1, 0, 0;\n"
      "}\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]),
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]),
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]),
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), "+f"(c[32]),
        "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), "+f"(c[40]),
        "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), "+f"(c[48]),
        "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), "+f"(c[56]),
        "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
      : "l"(da), "l"(db), "r"(scale_d));
}

struct Scheduler {
  int m_tiles;
  __device__ int total() const { return m_tiles * N_TILES; }
  __device__ void at(int index, int& m, int& n) const {
    const int width = GROUP * N_TILES;
    const int g = index / width;
    const int rows = min(GROUP, m_tiles - g * GROUP);
    const int rest = index % width;
    m = g * GROUP + rest % rows;
    n = rest / rows;
  }
};

__global__ void __launch_bounds__(THREADS, 1)
    pingpong(const __grid_constant__ CUtensorMap ta, const __grid_constant__ CUtensorMap tb,
             const __grid_constant__ CUtensorMap tc, int m_tiles) {
  extern __shared__ uint8_t dynamic[];
  Smem& s = *reinterpret_cast<Smem*>((reinterpret_cast<uintptr_t>(dynamic) + 1023) & ~uintptr_t(1023));
  const int group = threadIdx.x / 128;
  const int tid = threadIdx.x % 128;
  const Scheduler tiles{m_tiles};

  if (threadIdx.x == 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&ta));
    asm volatile("prefetch.tensormap [%0];" ::"l"(&tb));
    asm volatile("prefetch.tensormap [%0];" ::"l"(&tc));
    for (int i = 0; i < STAGES; ++i) {
      bar_init(&s.full[i], 1);
      bar_init(&s.empty[i], 1);
    }
    bar_init(&s.order[0], 1);
    bar_init(&s.order[1], 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;\n");
    if (tid == 0) {
      uint64_t keep;
      asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
      int it = 0;
      for (int t = blockIdx.x; t < tiles.total(); t += gridDim.x) {
        int m, n;
        tiles.at(t, m, n);
        for (int k = 0; k < K_STEPS; ++k, ++it) {
          const int slot = it % STAGES;
          const uint32_t parity = (it / STAGES) & 1;
          bar_wait(&s.empty[slot], parity ^ 1);
          bar_expect(&s.full[slot], STAGE);
          load_2d(s.stages[slot], &ta, &s.full[slot], k * TK, m * TM, keep);
          load_2d(s.stages[slot] + A_BYTES, &tb, &s.full[slot], k * TK, n * TN, keep);
        }
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;\n");
  const int warp = tid / 32;
  const int lane = tid % 32;
  float acc[2][64];
  // Warpgroup g takes the tiles number g, g + 2, ... of this block.
  int number = group;
  uint32_t turn = 0;
  for (int t = blockIdx.x + group * gridDim.x; t < tiles.total(); t += 2 * gridDim.x, number += 2, turn ^= 1) {
    int m, n;
    tiles.at(t, m, n);
    // Wait for the other one to have issued its main loop.
    if (number > 0) bar_wait(&s.order[group], group == 0 ? turn ^ 1 : turn);
    int it = number * K_STEPS;
    int release = -1;
    for (int k = 0; k < K_STEPS; ++k, ++it) {
      const int slot = it % STAGES;
      bar_wait(&s.full[slot], (it / STAGES) & 1);
      asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
#pragma unroll
      for (int kk = 0; kk < TK / 16; ++kk) {
        const uint64_t db = descriptor(s.stages[slot] + A_BYTES + kk * 32);
#pragma unroll
        for (int h = 0; h < 2; ++h)
          mma_64x128x16(acc[h], descriptor(s.stages[slot] + h * 64 * TK * 2 + kk * 32), db, (k | kk) != 0);
      }
      asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;\n" ::: "memory");
      if (release >= 0 && tid == 0) bar_arrive(&s.empty[release]);
      release = slot;
    }
    // The other one may begin.
    if (tid == 0) bar_arrive(&s.order[group ^ 1]);
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
    if (tid == 0) bar_arrive(&s.empty[release]);

    // Epilogue: registers -> swizzled shared memory -> TMA store.
    if (tid == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    uint8_t* out = s.out[group];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = h * 64 + warp * 16 + (lane % 16);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const int column = j * 2 + lane / 16;  // in units of 8
        uint32_t r[4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          __nv_bfloat162 v = __floats2bfloat162_rn(acc[h][j * 8 + q * 2], acc[h][j * 8 + q * 2 + 1]);
          r[q] = reinterpret_cast<uint32_t&>(v);
        }
        const uint32_t to = s32(out) + (column / 8) * (TM * 128) + row * 128 + ((column % 8) ^ (row % 8)) * 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(r[0]),
                     "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
      }
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    if (tid == 0) {
      store_2d(&tc, out, n * TN, m * TM);
      store_2d(&tc, out + TM * 128, n * TN + 64, m * TM);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
  }
  if (tid == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

void encode(CUtensorMap* map, void* p, uint64_t rows, uint64_t cols, uint32_t box_rows) {
  cuuint64_t size[2] = {cols, rows};
  cuuint64_t stride[1] = {cols * sizeof(__nv_bfloat16)};
  cuuint32_t box[2] = {64, box_rows};
  cuuint32_t element[2] = {1, 1};
  CUresult r = cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, size, stride, box, element,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS) TVM_FFI_THROW(RuntimeError) << "cuTensorMapEncodeTiled failed with " << int(r);
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const int64_t m = A.size(0);
  if (m == 0) return;
  if (m % TM) TVM_FFI_THROW(RuntimeError) << "M must be a multiple of " << TM;
  CUtensorMap ta, tb, tc;
  encode(&ta, A.data_ptr(), m, kK, TM);
  encode(&tb, B.data_ptr(), kN, kK, TN);
  encode(&tc, C.data_ptr(), m, kN, TM);
  const int bytes = sizeof(Smem) + 1024;
  cudaError_t e = cudaFuncSetAttribute(pingpong, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(e);
  int sms = 132;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, A.device().device_id);
  const int m_tiles = int(m / TM);
  const int grid = std::min(sms, m_tiles * N_TILES);
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  pingpong<<<grid, THREADS, bytes, stream>>>(ta, tb, tc, m_tiles);
  e = cudaGetLastError();
  if (e != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "pingpong: " << cudaGetErrorString(e);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
