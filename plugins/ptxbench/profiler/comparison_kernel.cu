// Compares an output with its reference. Compiled at run time per element type, with ELEMENT (its bits), LOAD (bits to
// float) and BLOCK (threads of a block) defined; see comparison_kernel.py.

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

constexpr int kPer = 16 / sizeof(ELEMENT);

struct Sums {
  double squared_error = 0, squared_reference = 0;
  u64 mismatched = 0, nan = 0;
  float max_abs = 0, max_rel = 0;

  // Rounded after the product and after the sum, as the tensor expression does; a fused multiply-add would differ.
  static __device__ __forceinline__ bool within(float error, float size, float atol, float rtol) {
    return error <= __fadd_rn(__fmul_rn(size, rtol), atol);
  }

  __device__ __forceinline__ void raise_max_rel(float error, float size) {
    // Divided only where it can raise the maximum: a division costs more than all the rest.
    const float divisor = fmaxf(size, 1e-30f);
    if (error > max_rel * divisor) max_rel = fmaxf(max_rel, error / divisor);
  }

  // Any values at all.
  __device__ __forceinline__ void add_one(float out, float ref, float atol, float rtol) {
    const float error = fabsf(out - ref), size = fabsf(ref);
    mismatched += !((within(error, size, atol, rtol) && is_finite(ref)) || out == ref);
    nan += out != out && ref == ref;
    const float finite_error = is_finite(error) ? error : 0.0f, finite_size = is_finite(size) ? size : 0.0f;
    squared_error += (double)finite_error * finite_error;
    squared_reference += (double)finite_size * finite_size;
    max_abs = fmaxf(max_abs, finite_error);
    raise_max_rel(finite_error, finite_size);
  }

  // A vector, at out and ref and already loaded; false, and nothing added, unless its sums of squares are ordinary fp32.
  __device__ __forceinline__ bool add_ordinary(uint4 out_vector, uint4 ref_vector, const ELEMENT* out,
                                               const ELEMENT* ref, float atol, float rtol) {
    const ELEMENT* outs = reinterpret_cast<const ELEMENT*>(&out_vector);
    const ELEMENT* refs = reinterpret_cast<const ELEMENT*>(&ref_vector);
    float errors = 0, references = 0, largest = 0;
    u32 beyond = 0;
    const float known_rel = max_rel;
    bool higher = false;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const float r = LOAD(refs[i]), error = fabsf(LOAD(outs[i]) - r), size = fabsf(r);
      beyond += !within(error, size, atol, rtol);
      errors += error * error;
      references += size * size;
      largest = fmaxf(largest, error);
      higher |= error > known_rel * size;
    }
    // NaN fails both comparisons.
    const bool ordinary = references > 1e-30f && references < 1e30f && errors < 1e30f && (errors > 1e-30f || largest == 0);
    if (!ordinary) return false;
    mismatched += beyond;
    squared_error += errors;
    squared_reference += references;
    max_abs = fmaxf(max_abs, largest);
    if (higher) {
      for (int i = 0; i < kPer; ++i) raise_max_rel(fabsf(LOAD(out[i]) - LOAD(ref[i])), fabsf(LOAD(ref[i])));
    }
    return true;
  }
};

__device__ __forceinline__ double warp_sum(double value) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
  return value;
}

__device__ __forceinline__ double warp_max(double value) {
  for (int offset = 16; offset; offset /= 2) value = fmax(value, __shfl_down_sync(0xffffffffu, value, offset));
  return value;
}

// One pass over an output and its reference: the statistics that comparison.py specifies, with equal counts.
// found: mismatched, NaN, squared error, squared reference, max abs, max rel; zeroed. Pointers 16-byte
// aligned, blocks of BLOCK threads.
extern "C" __global__ void compare(const ELEMENT* __restrict__ out, const ELEMENT* __restrict__ ref, u64 count,
                                   float atol, float rtol, double* found) {
  Sums mine;
  const u64 vectors = count / kPer;
  const u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x;
  const u64 stride = gridDim.x * (u64)blockDim.x;
  const uint4* out_vectors = reinterpret_cast<const uint4*>(out);
  const uint4* ref_vectors = reinterpret_cast<const uint4*>(ref);
  const auto add = [&](u64 index, uint4 out_vector, uint4 ref_vector) {
    const ELEMENT *o = out + index * kPer, *r = ref + index * kPer;
    if (mine.add_ordinary(out_vector, ref_vector, o, r, atol, rtol)) return;
#pragma unroll 1
    for (int i = 0; i < kPer; ++i) mine.add_one(LOAD(o[i]), LOAD(r[i]), atol, rtol);
  };
  u64 index = first;
  for (; index + stride < vectors; index += 2 * stride) {
    // Four loads before the first is needed.
    const uint4 out_a = out_vectors[index], ref_a = ref_vectors[index];
    const uint4 out_b = out_vectors[index + stride], ref_b = ref_vectors[index + stride];
    add(index, out_a, ref_a);
    add(index + stride, out_b, ref_b);
  }
  if (index < vectors) add(index, out_vectors[index], ref_vectors[index]);
  const u64 rest = vectors * kPer + first;
  if (rest < count) mine.add_one(LOAD(out[rest]), LOAD(ref[rest]), atol, rtol);

  // One addition per block and number: thousands to one address would take longer than all the reading.
  __shared__ double parts[6][BLOCK / 32];
  const double numbers[6] = {warp_sum((double)mine.mismatched), warp_sum((double)mine.nan),
                             warp_sum(mine.squared_error),      warp_sum(mine.squared_reference),
                             warp_max(mine.max_abs),            warp_max(mine.max_rel)};
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < 6; ++i) parts[i][threadIdx.x / 32] = numbers[i];
  __syncthreads();
  if (threadIdx.x < 6) {
    const bool is_sum = threadIdx.x < 4;
    double total = 0;
    for (int warp = 0; warp < BLOCK / 32; ++warp) {
      const double part = parts[threadIdx.x][warp];
      total = is_sum ? total + part : fmax(total, part);
    }
    // Non-negative doubles order like their bit patterns.
    if (is_sum)
      atomicAdd(&found[threadIdx.x], total);
    else
      atomicMax(reinterpret_cast<u64*>(&found[threadIdx.x]), (u64)__double_as_longlong(total));
  }
}

// Sums of squares per block of an output, as blocks.py specifies them. Of cells, which are `width` neighbouring elements
// each and counted as [outer, rows, inner], those of one tile of the rows make a block: found is [2, outer, tiles, inner],
// zeroed. Pointers 16-byte aligned.
extern "C" __global__ void block_sums(const ELEMENT* __restrict__ out, const ELEMENT* __restrict__ ref, u64 cells,
                                      u64 width, u64 rows, u64 inner, u64 tiles, const int* __restrict__ tile_of_row,
                                      double* found) {
  const u64 blocks = cells / (rows * inner) * tiles * inner;
  for (u64 cell = blockIdx.x * (u64)blockDim.x + threadIdx.x; cell < cells; cell += gridDim.x * (u64)blockDim.x) {
    double errors = 0, references = 0;
    const auto add = [&](float o, float r) {
      const float error = o - r;
      if (is_finite(error)) errors += (double)error * error;
      if (is_finite(r)) references += (double)r * r;
    };
    const ELEMENT *o = out + cell * width, *r = ref + cell * width;
    if (width % kPer == 0) {
      const uint4 *o_vectors = reinterpret_cast<const uint4*>(o), *r_vectors = reinterpret_cast<const uint4*>(r);
#pragma unroll 4
      for (u64 vector = 0; vector < width / kPer; ++vector) {
        const uint4 o_vector = o_vectors[vector], r_vector = r_vectors[vector];
#pragma unroll
        for (int i = 0; i < kPer; ++i)
          add(LOAD(reinterpret_cast<const ELEMENT*>(&o_vector)[i]), LOAD(reinterpret_cast<const ELEMENT*>(&r_vector)[i]));
      }
    } else {
      for (u64 i = 0; i < width; ++i) add(LOAD(o[i]), LOAD(r[i]));
    }
    const u64 line = cell / inner;
    const u64 block = (line / rows * tiles + tile_of_row[line % rows]) * inner + cell % inner;
    atomicAdd(&found[block], errors);
    atomicAdd(&found[blocks + block], references);
  }
}
