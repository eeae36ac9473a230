// Compares an output with its reference. Compiled at run time per element type, with ELEMENT (its bits) and LOAD (bits
// to float) defined; see comparison_kernel.py.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ float from_bf16(unsigned short bits) { return __uint_as_float((u32)bits << 16); }

__device__ __forceinline__ float from_f16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ float from_f32(u32 bits) { return __uint_as_float(bits); }

__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) <= 3.40282347e38f; }

struct Sums {
  double mismatched = 0, nan = 0, squared_error = 0, squared_reference = 0;
  float max_abs = 0, max_rel = 0;

  __device__ void add(float out, float ref, float atol, float rtol) {
    const float error = fabsf(out - ref);
    const float size = fabsf(ref);
    // Rounded after the product and after the sum, as the tensor expression does; a fused multiply-add would differ.
    const bool within = error <= __fadd_rn(__fmul_rn(size, rtol), atol) && is_finite(ref);
    mismatched += !(within || out == ref);
    nan += out != out && ref == ref;
    const float finite_error = is_finite(error) ? error : 0.0f;
    const float finite_size = is_finite(size) ? size : 0.0f;
    squared_error += (double)finite_error * finite_error;
    squared_reference += (double)finite_size * finite_size;
    max_abs = fmaxf(max_abs, finite_error);
    max_rel = fmaxf(max_rel, finite_error / fmaxf(finite_size, 1e-30f));
  }
};

__device__ __forceinline__ double warp_sum(double value) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (int offset = 16; offset; offset /= 2) value = fmaxf(value, __shfl_down_sync(0xffffffffu, value, offset));
  return value;
}

// One pass over an output and its reference: the statistics that comparison.py specifies, with equal counts.
// sums: 4 doubles, maxima: 2 floats, both zeroed. Pointers 16-byte aligned; count elements.
extern "C" __global__ void compare(const ELEMENT* __restrict__ out, const ELEMENT* __restrict__ ref, u64 count,
                                   float atol, float rtol, double* sums, float* maxima) {
  constexpr int kPer = 16 / sizeof(ELEMENT);
  Sums mine;
  const u64 vectors = count / kPer;
  const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  const u64 stride = gridDim.x * (u64)blockDim.x;
  for (u64 index = first; index < vectors; index += stride) {
    const uint4 out_vector = reinterpret_cast<const uint4*>(out)[index];
    const uint4 ref_vector = reinterpret_cast<const uint4*>(ref)[index];
    const ELEMENT* o = reinterpret_cast<const ELEMENT*>(&out_vector);
    const ELEMENT* r = reinterpret_cast<const ELEMENT*>(&ref_vector);
#pragma unroll
    for (int lane = 0; lane < kPer; ++lane) mine.add(LOAD(o[lane]), LOAD(r[lane]), atol, rtol);
  }
  const u64 rest = vectors * kPer + first;
  if (rest < count) mine.add(LOAD(out[rest]), LOAD(ref[rest]), atol, rtol);

  const double totals[4] = {warp_sum(mine.mismatched), warp_sum(mine.nan), warp_sum(mine.squared_error),
                            warp_sum(mine.squared_reference)};
  const float largest[2] = {warp_max(mine.max_abs), warp_max(mine.max_rel)};
  if (threadIdx.x % 32 == 0) {
    for (int i = 0; i < 4; ++i) atomicAdd(&sums[i], totals[i]);
    // Non-negative floats order like their bit patterns.
    for (int i = 0; i < 2; ++i) atomicMax(reinterpret_cast<int*>(&maxima[i]), __float_as_int(largest[i]));
  }
}
