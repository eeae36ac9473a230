// What kernels that split K share: FP32 partial sums in row-major slices of M x N, and the kernel that adds the slices.
#include "tile_gemm.cuh"

struct ToFloat {
  float* sums;
  __device__ __forceinline__ void operator()(int row, int col, float low, float high) const {
    *reinterpret_cast<float2*>(sums + static_cast<int64_t>(row) * kN + col) = make_float2(low, high);
  }
};

// Eight elements a thread; `count`, the elements of C, is a multiple of 8 * 256 since kN is.
__global__ void __launch_bounds__(256) reduce_slices(const float4* sums, uint4* c, int64_t count, int slices) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  float4 low = sums[2 * i], high = sums[2 * i + 1];
  for (int s = 1; s < slices; ++s) {
    const float4 x = sums[s * (count / 4) + 2 * i], y = sums[s * (count / 4) + 2 * i + 1];
    low.x += x.x, low.y += x.y, low.z += x.z, low.w += x.w;
    high.x += y.x, high.y += y.y, high.z += y.z, high.w += y.w;
  }
  c[i] = make_uint4(pack_bf16(low.x, low.y), pack_bf16(low.z, low.w), pack_bf16(high.x, high.y), pack_bf16(high.z, high.w));
}

static_assert(kN % 256 == 0, "128 rows of C are a whole number of blocks of 2048 elements");

inline void launch_reduce(const float* sums, bf16* c, int64_t count, int slices, cudaStream_t stream) {
  reduce_slices<<<static_cast<int>(count / 2048), 256, 0, stream>>>(reinterpret_cast<const float4*>(sums),
                                                                  reinterpret_cast<uint4*>(c), count, slices);
  check(cudaGetLastError(), "launching reduce_slices");
}
