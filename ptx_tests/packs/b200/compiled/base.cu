// Checks of base.cuh: compiled and disassembled for sm_100a, never executed.
#include "base.cuh"

__global__ void check_elect_one(uint32_t* out) {
  if (elect_one()) out[warp_index()] = threadIdx.x;
}

__global__ void check_named_barriers(uint32_t* out) {
  __shared__ uint32_t value;
  if (warp_index() == 0) {
    value = out[1];
    named_arrive(1, 64);
  } else {
    named_sync(1, 64);
    out[0] = value;
  }
}

__global__ void __launch_bounds__(256, 1) check_registers(uint32_t* out) {
  if (warp_index() < 4) {
    registers_release<40>();
    out[threadIdx.x] = 1;
  } else {
    registers_take<232>();
    out[threadIdx.x] = 2;
  }
}

__global__ void check_arithmetic(float* out, const float* in) {
  const float x = in[threadIdx.x], y = in[threadIdx.x + 32];
  const float2 v = fma2(make_float2(x, y), make_float2(2.f, 3.f), mul2(make_float2(y, x), make_float2(x, x)));
  out[threadIdx.x] = exp2_fast(v.x) + exp2_poly(v.y) + max3(v.x, x, y);
}

__global__ void check_pack_bf16(uint32_t* out, const float* in) { out[threadIdx.x] = pack_bf16(in[threadIdx.x], in[threadIdx.x + 32]); }

__global__ void check_st_shared_v4(uint4* out) {
  __shared__ alignas(1024) uint8_t box[8192];
  const uint32_t base = smem_u32(box);
  for (uint32_t chunk = 0; chunk < 8; ++chunk)
    st_shared_v4(base + swizzle_128b(threadIdx.x * 128 + chunk * 16), chunk, threadIdx.x, 2, 3);
  __syncthreads();
  out[threadIdx.x] = reinterpret_cast<uint4*>(box)[(threadIdx.x * 7) % 64];
}

static_assert(swizzle_128b(0) == 0 && swizzle_128b(128) == 128 + 16 && swizzle_128b(3 * 128 + 5 * 16) == 3 * 128 + 6 * 16 &&
              swizzle_128b(8 * 128 + 16) == 8 * 128 + 16);
