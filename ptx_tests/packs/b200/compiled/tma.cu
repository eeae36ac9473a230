// Checks of tma.cuh and launch.cuh: compiled and disassembled for sm_100a, never executed.
#include "launch.cuh"
#include "tma.cuh"

constexpr int kBox = 128 * 128;  // bytes of 128 rows of 64 BF16

__device__ __forceinline__ uint32_t start(uint8_t* raw, uint64_t* barrier) {
  if (threadIdx.x == 0) {
    mbar_init(smem_u32(barrier), 1);
    mbar_init_fence();
  }
  __syncthreads();
  return (smem_u32(raw) + 1023u) & ~1023u;
}

// The first words of what was loaded.
__device__ __forceinline__ void finish(uint32_t* out, uint64_t* barrier, uint32_t base) {
  mbar_wait(smem_u32(barrier), 0);
  uint32_t v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(base + threadIdx.x * 4) : "memory");
  out[threadIdx.x] = v;
}

#define CHECK_LOAD(name, attributes, bytes, ...)                                                       \
  __global__ void attributes name(const __grid_constant__ CUtensorMap map, uint32_t* out) {            \
    extern __shared__ uint8_t raw[];                                                                   \
    __shared__ uint64_t barrier;                                                                       \
    const uint32_t base = start(raw, &barrier), bar = smem_u32(&barrier);                              \
    if (threadIdx.x == 0) {                                                                            \
      tma_prefetch_map(&map);                                                                          \
      mbar_arrive_expect(bar, bytes);                                                                  \
      __VA_ARGS__;                                                                                     \
    }                                                                                                  \
    finish(out, &barrier, base);                                                                       \
  }

CHECK_LOAD(check_tma_load_2d, , kBox, tma_load_2d(base, &map, bar, 0, blockIdx.x * 128))
CHECK_LOAD(check_tma_load_3d, , 2 * kBox, tma_load_3d(base, &map, bar, 0, blockIdx.x * 128, 0))
CHECK_LOAD(check_tma_load_2d_hint_first, , kBox, tma_load_2d_hint(base, &map, bar, 0, 0, l2_evict_first()))
CHECK_LOAD(check_tma_load_2d_hint_last, , kBox, tma_load_2d_hint(base, &map, bar, 0, 0, l2_evict_last()))

#define CHECK_CLUSTER_LOAD(name, bytes, ...)                                                                           \
  __global__ void __cluster_dims__(2, 1, 1) name(const __grid_constant__ CUtensorMap map, uint32_t* out) {             \
    extern __shared__ uint8_t raw[];                                                                                   \
    __shared__ uint64_t barrier;                                                                                       \
    const uint32_t base = start(raw, &barrier), bar = smem_u32(&barrier), leader = cluster_map(bar, cluster_rank() & ~1u); \
    cluster_sync();                                                                                                    \
    if (threadIdx.x == 0) {                                                                                            \
      if (cluster_rank() == 0) mbar_arrive_expect(bar, bytes);                                                         \
      __VA_ARGS__;                                                                                                     \
    }                                                                                                                  \
    if (cluster_rank() == 0) finish(out, &barrier, base);                                                              \
    if (leader == 0) out[0] = 0;                                                                                       \
    cluster_sync();                                                                                                    \
  }

CHECK_CLUSTER_LOAD(check_tma_load_2d_multicast, 2 * kBox,
                   tma_load_2d_multicast(base + cluster_rank() * kBox, &map, bar, 0, cluster_rank() * 128, 0b11))
CHECK_CLUSTER_LOAD(check_tma_load_2d_pair, 2 * kBox, tma_load_2d_pair(base, &map, leader, 0, cluster_rank() * 128))
CHECK_CLUSTER_LOAD(check_tma_load_3d_pair, 4 * kBox, tma_load_3d_pair(base, &map, leader, 0, cluster_rank() * 128, 0))
CHECK_CLUSTER_LOAD(check_tma_load_2d_pair_multicast, 4 * kBox,
                   tma_load_2d_pair_multicast(base + cluster_rank() * kBox, &map, leader, 0, cluster_rank() * 128, 0b11))

#define CHECK_STORE(name, ...)                                               \
  __global__ void name(const __grid_constant__ CUtensorMap map) {            \
    extern __shared__ uint8_t raw[];                                         \
    const uint32_t base = (smem_u32(raw) + 1023u) & ~1023u;                  \
    st_shared_v4(base + swizzle_128b(threadIdx.x * 128), 1, 2, 3, 4);        \
    fence_async_smem();                                                      \
    __syncthreads();                                                         \
    if (threadIdx.x == 0) {                                                  \
      __VA_ARGS__;                                                           \
      tma_store_commit();                                                    \
      tma_store_wait_read<0>();                                              \
      tma_store_wait_all<0>();                                               \
    }                                                                        \
  }

CHECK_STORE(check_tma_store_2d, tma_store_2d(&map, base, 0, 128))
CHECK_STORE(check_tma_store_3d, tma_store_3d(&map, base, 0, 128, 0))
CHECK_STORE(check_tma_reduce_add_2d, tma_reduce_add_2d(&map, base, 0, 128))

// Cluster launch control: sums the numbers of the blocks that this one took over.
template <bool kMulticast>
__device__ __forceinline__ void steal(uint32_t* out) {
  __shared__ alignas(16) uint4 response;
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    mbar_init_fence();
  }
  if (kMulticast) cluster_sync();
  __syncthreads();
  uint3 block = {blockIdx.x, blockIdx.y, blockIdx.z};
  for (uint32_t phase = 0;; phase ^= 1) {
    if (threadIdx.x == 0) {
      mbar_arrive_expect(bar, 16);
      if (!kMulticast) clc_try_cancel(smem_u32(&response), bar);
      if (kMulticast && cluster_rank() == 0) clc_try_cancel_multicast(smem_u32(&response), bar);
    }
    atomicAdd(out, block.x + block.y + block.z);
    mbar_wait(bar, phase);
    if (!clc_query(smem_u32(&response), block)) break;
    fence_async_smem();
    if (kMulticast) cluster_sync();
    __syncthreads();
  }
}
__global__ void check_clc(uint32_t* out) { steal<false>(out); }
__global__ void __cluster_dims__(2, 1, 1) check_clc_multicast(uint32_t* out) {
  steal<true>(out);
  cluster_sync();
}

// Every function for the host.
void run(tvm::ffi::TensorView source, tvm::ffi::TensorView out) {
  const CUtensorMap map = make_map_bf16(source.data_ptr(), source.size(0), source.size(1), 128);
  const CUtensorMap grouped = make_map_bf16_grouped(source.data_ptr(), source.size(0), source.size(1), 128, 2);
  const cudaStream_t stream =
      static_cast<cudaStream_t>(TVMFFIEnvGetStream(source.device().device_type, source.device().device_id));
  launch(check_tma_load_2d, dim3(1), 32, kBox + 1024, 1, stream, map, static_cast<uint32_t*>(out.data_ptr()));
  launch(check_tma_load_3d, dim3(1), 32, 2 * kBox + 1024, 1, stream, grouped, static_cast<uint32_t*>(out.data_ptr()));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
