#pragma once
#include "base.cuh"

// Cluster launch control: takes over a cluster of this grid that has not started. One thread issues after mbar_arrive_expect(bar, 16);
// the 16-byte response (16-aligned shared memory) is there after mbar_wait. Not again once a response said no.
__device__ __forceinline__ void clc_try_cancel(uint32_t response, uint32_t bar) {
  asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], [%1];"
               ::"r"(response), "r"(bar) : "memory");
}
// For clusters: one thread of one block; response and 16 bytes arrive at the same offsets in every block, each of which expects them.
__device__ __forceinline__ void clc_try_cancel_multicast(uint32_t response, uint32_t bar) {
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%0], [%1];"
      ::"r"(response), "r"(bar) : "memory");
}
// True: `block` is blockIdx of the first block of the cluster that is ours now (add the own position in the cluster). False: no more
// work. All readers run fence_async_smem and meet at a barrier before the response is overwritten.
__device__ __forceinline__ bool clc_query(uint32_t response, uint3& block) {
  uint32_t canceled;
  asm volatile(
      "{\n .reg .pred p;\n .reg .b128 r;\n ld.shared.b128 r, [%4];\n"
      " clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;\n selp.u32 %3, 1, 0, p;\n"
      " mov.u32 %0, 0;\n mov.u32 %1, 0;\n mov.u32 %2, 0;\n"
      " @p clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, r;\n}"
      : "=r"(block.x), "=r"(block.y), "=r"(block.z), "=r"(canceled) : "r"(response) : "memory");
  return canceled != 0;
}

// Launch on the host: `cluster` blocks along x (gridDim.x a multiple of it), `smem` bytes of dynamic shared memory; errors are thrown.
// For kernels without __cluster_dims__: those have their size already, and are launched with <<<>>> after cudaFuncSetAttribute.
template <typename... Params, typename... Args>
inline void launch(void (*kernel)(Params...), dim3 grid, uint32_t threads, size_t smem, uint32_t cluster, cudaStream_t stream, Args... args) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = smem;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(smem));
  if (error == cudaSuccess) error = cudaLaunchKernelEx(&config, kernel, args...);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << "launch: " << cudaGetErrorString(error);
}
