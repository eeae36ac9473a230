// A forward kernel as the FlashAttention-4 style schedule says, of the pack's functions alone: compiled and disassembled
// for sm_100a, never executed.
#include "mma.cuh"
#include "tma.cuh"

constexpr float kC = 0.08838834764831845f * 1.4426950408889634f;
constexpr uint32_t kTile = 32768, kBox = 16384;
__global__ void __launch_bounds__(512, 1)
    check_forward(const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
                  const __grid_constant__ CUtensorMap map_v, const __grid_constant__ CUtensorMap map_o, float* lse, int seq) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t bars[22];
  __shared__ float scale[2][128];
  __shared__ uint32_t slot;
  const uint32_t base = (smem_u32(raw) + 1023u) & ~1023u, q = base, ring = base + 2 * kTile;
  const uint32_t q_full = smem_u32(bars), kv_full = q_full + 16, kv_empty = kv_full + 32, s_full = kv_empty + 32;
  const uint32_t p_full = s_full + 16, o_full = p_full + 16, f_full = o_full + 16, f_empty = f_full + 16;
  const int warp = warp_index(), tiles = seq / 128;
  const int row0 = blockIdx.y * seq + blockIdx.x * 256;
  if (warp == 12) {
    if (elect_one()) {
      for (int i = 0; i < 2; ++i) {
        mbar_init(q_full + 8 * i, 1);
        mbar_init(s_full + 8 * i, 1);
        mbar_init(p_full + 8 * i, 256);
        mbar_init(o_full + 8 * i, 1);
        mbar_init(f_full + 8 * i, 128);
        mbar_init(f_empty + 8 * i, 128);
      }
      for (int i = 0; i < 4; ++i) {
        mbar_init(kv_full + 8 * i, 1);
        mbar_init(kv_empty + 8 * i, 1);
      }
      mbar_init_fence();
    }
    __syncwarp();
    tmem_alloc(smem_u32(&slot), 512);
    tmem_relinquish();
  }
  tmem_fence_before();
  __syncthreads();
  tmem_fence_after();
  const uint32_t tmem = slot;
  if (warp < 8) {  // softmax
    registers_take<192>();
    const int X = warp >> 2, row = threadIdx.x & 127;
    const uint32_t lanes = static_cast<uint32_t>(warp & 3) * 32 << 16, S = tmem + 128 * X + lanes, P = S + 64;
    float m = -INFINITY, l = 0.f;
    for (int j = 0; j < tiles; ++j) {
      mbar_wait(s_full + 8 * X, j & 1);
      tmem_fence_after();
      uint32_t s[4][32];
      for (int h = 0; h < 4; ++h) tmem_ld_32x32b(s[h], S + 32 * h);
      tmem_wait_ld();
      const float m_old = m;
#pragma unroll
      for (int i = 0; i < 128; i += 2)
        m = max3(m, __uint_as_float(s[i / 32][i % 32]), __uint_as_float(s[i / 32][i % 32 + 1]));
      const float f = exp2_fast((m_old - m) * kC);
      if (j > 0) {
        mbar_wait(f_empty + 8 * X, ((j - 1) & 1) ^ 1);
        scale[X][row] = f;
        mbar_arrive(f_full + 8 * X);
      }
      float2 sum = make_float2(0.f, 0.f);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t p[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          const int c = 64 * h + 2 * i;
          const float2 score = make_float2(__uint_as_float(s[c / 32][c % 32]), __uint_as_float(s[c / 32][c % 32 + 1]));
          float2 v = fma2(score, make_float2(kC, kC), make_float2(-m * kC, -m * kC));
          v.x = exp2_fast(v.x);
          v.y = (i & 3) == 3 ? exp2_poly(v.y) : exp2_fast(v.y);
          sum.x += v.x;
          sum.y += v.y;
          p[i] = pack_bf16(v.x, v.y);
        }
        tmem_st_32x32b(P + 32 * h, p);
      }
      tmem_wait_st();
      tmem_fence_before();
      mbar_arrive(p_full + 8 * X);
      l = l * f + sum.x + sum.y;
    }
    mbar_wait(f_empty + 8 * X, ((tiles - 1) & 1) ^ 1);
    scale[X][row] = l;
    mbar_arrive(f_full + 8 * X);
    lse[row0 + 128 * X + row] = m * 0.08838834764831845f + logf(l);
  } else if (warp < 12) {  // correction
    registers_release<80>();
    const int row = threadIdx.x & 127;
    const uint32_t lanes = static_cast<uint32_t>(warp & 3) * 32 << 16;
    for (int j = 0; j < tiles; ++j)
      for (int X = 0; X < 2; ++X) {
        if (j > 0) {
          mbar_wait(f_full + 8 * X, (j - 1) & 1);
          const float f = scale[X][row];
          mbar_arrive(f_empty + 8 * X);
          mbar_wait(o_full + 8 * X, (j - 1) & 1);
          tmem_fence_after();
          if (__any_sync(0xFFFFFFFF, f < 1.0f))
            for (int h = 0; h < 4; ++h) {
              uint32_t r[32];
              tmem_ld_32x32b(r, tmem + 256 + 128 * X + lanes + 32 * h);
              tmem_wait_ld();
#pragma unroll
              for (int i = 0; i < 32; i += 2) {
                const float2 v = mul2(make_float2(__uint_as_float(r[i]), __uint_as_float(r[i + 1])), make_float2(f, f));
                r[i] = __float_as_uint(v.x);
                r[i + 1] = __float_as_uint(v.y);
              }
              tmem_st_32x32b(tmem + 256 + 128 * X + lanes + 32 * h, r);
            }
          tmem_wait_st();
          tmem_fence_before();
        }
        mbar_arrive(p_full + 8 * X);
      }
    for (int X = 0; X < 2; ++X) {
      mbar_wait(f_full + 8 * X, (tiles - 1) & 1);
      const float inv = 1.f / scale[X][row];
      mbar_wait(o_full + 8 * X, (tiles - 1) & 1);
      tmem_fence_after();
      for (int h = 0; h < 4; ++h) {
        uint32_t r[32];
        tmem_ld_32x32b(r, tmem + 256 + 128 * X + lanes + 32 * h);
        tmem_wait_ld();
        const uint32_t box = q + X * kTile + kBox * (h / 2);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          uint32_t p[4];
          for (int i = 0; i < 4; ++i)
            p[i] = pack_bf16(__uint_as_float(r[8 * c + 2 * i]) * inv, __uint_as_float(r[8 * c + 2 * i + 1]) * inv);
          st_shared_v4(box + swizzle_128b(128 * row + 16 * (4 * (h & 1) + c)), p[0], p[1], p[2], p[3]);
        }
      }
      tmem_fence_before();
      fence_async_smem();
      named_sync(1, 128);
      if (warp == 8 && elect_one()) {
        tma_store_2d(&map_o, q + X * kTile, 0, row0 + 128 * X);
        tma_store_2d(&map_o, q + X * kTile + kBox, 64, row0 + 128 * X);
        tma_store_commit();
        tma_store_wait_all<0>();
      }
      __syncwarp();
    }
  } else {
    registers_release<48>();
    if (warp == 13 && elect_one()) {
      auto load = [&](int n, const CUtensorMap* map, int row) {
        const uint32_t s = n & 3;
        mbar_wait(kv_empty + 8 * s, ((n >> 2) & 1) ^ 1);
        mbar_arrive_expect(kv_full + 8 * s, kTile);
        tma_load_3d(ring + s * kTile, map, kv_full + 8 * s, 0, row, 0);
      };
      const int keys = blockIdx.y * seq;
      mbar_arrive_expect(q_full, kTile);
      tma_load_3d(q, &map_q, q_full, 0, row0, 0);
      load(0, &map_k, keys);
      mbar_arrive_expect(q_full + 8, kTile);
      tma_load_3d(q + kTile, &map_q, q_full + 8, 0, row0 + 128, 0);
      load(1, &map_v, keys);
      for (int j = 1; j < tiles; ++j) {
        load(2 * j, &map_k, keys + 128 * j);
        load(2 * j + 1, &map_v, keys + 128 * j);
      }
    } else if (warp == 12 && elect_one()) {
      auto qk = [&](int X, int j) {
        const uint32_t a = q + X * kTile, b = ring + ((2 * j) & 3) * kTile;
#pragma unroll
        for (int k = 0; k < 8; ++k)
          mma_f16_ss(tmem + 128 * X, smem_desc_k_major(a + kBox * (k / 4)) + 2 * (k % 4),
                     smem_desc_k_major(b + kBox * (k / 4)) + 2 * (k % 4), instr_desc_bf16(128, 128), k > 0);
        mma_commit(s_full + 8 * X);
      };
      auto pv = [&](int X, int j) {
        const uint32_t b = ring + ((2 * j + 1) & 3) * kTile;
#pragma unroll
        for (int k = 0; k < 8; ++k)
          mma_f16_ts(tmem + 256 + 128 * X, tmem + 128 * X + 64 + 8 * k, smem_desc_mn_major(b, kBox) + 128 * k,
                     instr_desc_bf16(128, 128, false, true), j > 0 || k > 0);
        mma_commit(o_full + 8 * X);
      };
      auto wait = [&](int n) { mbar_wait(kv_full + 8 * (n & 3), (n >> 2) & 1); };
      mbar_wait(q_full, 0);
      wait(0);
      qk(0, 0);
      mbar_wait(q_full + 8, 0);
      qk(1, 0);
      mma_commit(kv_empty);
      for (int j = 0; j < tiles; ++j) {
        wait(2 * j + 1);
        if (j + 1 < tiles) wait(2 * j + 2);
        for (int X = 0; X < 2; ++X) {
          mbar_wait(p_full + 8 * X, j & 1);
          tmem_fence_after();
          pv(X, j);
          if (j + 1 < tiles) qk(X, j + 1);
        }
        mma_commit(kv_empty + 8 * ((2 * j + 1) & 3));
        if (j + 1 < tiles) mma_commit(kv_empty + 8 * ((2 * j + 2) & 3));
      }
    }
  }
  __syncthreads();
  if (warp == 12) tmem_dealloc(tmem, 512);
}
