// Standard normal elements from a key, written or checked at memory speed. Compiled at run time per element type, with
// ELEMENT (its bits) and STORE (float to bits) defined; see inputs.py.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int kGroup = 8;
constexpr int kWords = kGroup * sizeof(ELEMENT) / 4;

// Two elements as they lie in memory.
__device__ __forceinline__ void to_bf16(float x, float y, u32* word) {
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(*word) : "f"(y), "f"(x));
}

__device__ __forceinline__ void to_f16(float x, float y, u32* word) {
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(*word) : "f"(y), "f"(x));
}

__device__ __forceinline__ void to_f32(float x, float y, u32* words) {
  words[0] = __float_as_uint(x);
  words[1] = __float_as_uint(y);
}

// Philox4x32 with 7 rounds (Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3. SC 2011): the
// counter is the stream's number. Only seeds come from here.
__device__ __forceinline__ uint2 philox(u32 counter, u64 key) {
  u32 c0 = counter, c1 = 0, c2 = 0, c3 = 0, k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint2(c0 ^ c2, c1 ^ c3);
}

// MWC64X (D. B. Thomas, Imperial College, 2011): two instructions per word, period about 2^63.
struct Stream {
  u32 x, carry;

  __device__ Stream(u32 number, u64 key) {
    const uint2 seed = philox(number, key);
    x = seed.x | 1u;
    carry = seed.y >> 1;  // below the multiplier, as the generator asks
  }

  __device__ __forceinline__ u32 next() {
    const u32 word = x ^ carry;
    const u64 product = (u64)4294883355u * x + carry;
    x = (u32)product;
    carry = (u32)(product >> 32);
    return word;
  }
};

// Box-Muller. The radius takes the word's upper 23 bits, so that nothing is beyond 5.7; the angle takes the lower 16, the
// lowest byte first, so that the seven bits that both take are the least of either. No masks and no conversions, only
// bytes put under the exponent of 1: the limit here is issuing instructions and the special function unit, not memory.
__device__ __forceinline__ float radius_of(u32 word) {
  const float uniform = 2.0f - __uint_as_float(word >> 9 | 0x3f800000u);  // (0, 1]
  float log2, radius;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(uniform));
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(fabsf(1.38629436f * log2)));  // -2 ln 2; log2 may be off by one bit
  return radius;
}

// 1 + n / 2^23, n of the word's lower 16 bits with their bytes swapped.
__device__ __forceinline__ float low_bits(u32 word) {
  return __uint_as_float(__byte_perm(word, 0x3f800000u, 0x7601));
}

__device__ __forceinline__ float2 normal_pair_special(u32 word) {
  const float angle = low_bits(word) * (128 * 6.28318531f);  // in 128ths of a turn, since whole turns do not matter
  float sine, cosine;
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
  const float radius = radius_of(word);
  return make_float2(radius * cosine, radius * sine);
}

// The same by polynomials over half a turn, fitted to 1e-5, and a mirror: half of the pairs are made so, and the special
// function unit and the rest of the processor are about equally busy.
__device__ __forceinline__ float2 normal_pair_polynomial(u32 word) {
  const float t = fmaf(low_bits(word), 128.0f, -128.5f);  // half turns, from -1/2 to 1/2
  const float square = t * t;
  const float sine = t * (3.14158202f + square * (-5.16714279f + square * (2.54189896f + square * -0.55463603f)));
  const float cosine = 1.0f + square * (-4.93416689f + square * (4.04316545f + square * -1.22649351f));
  const float radius = radius_of(word);
  return make_float2(__uint_as_float(__float_as_uint(radius * cosine) ^ (word << 23 & 0x80000000u)), radius * sine);
}

struct alignas(16) Group {
  u32 word[kWords];

  __device__ __forceinline__ explicit Group(Stream& stream) {
#pragma unroll
    for (int pair = 0; pair < kGroup / 2; ++pair) {
      const u32 random = stream.next();
      const float2 values = pair % 2 ? normal_pair_special(random) : normal_pair_polynomial(random);
      STORE(values.x, values.y, word + pair * kWords / 4);
    }
  }

  __device__ ELEMENT element(int i) const {
    return sizeof(ELEMENT) == 4 ? (ELEMENT)word[i] : (ELEMENT)(word[i / 2] >> i % 2 * 16);
  }
};

// Which thread makes an element depends on the grid, so every launch uses the same one. Fewer than 2^32 groups.
template <typename Whole, typename Part>
__device__ __forceinline__ void for_each_group(u64 count, u64 key, Whole whole, Part part) {
  const u32 number = blockIdx.x * blockDim.x + threadIdx.x, groups = count / kGroup;
  Stream stream(number, key);
  u32 index = number;
  for (; index < groups; index += gridDim.x * blockDim.x) whole(index, Group(stream));
  if (index == groups && count % kGroup) {
    const Group group(stream);
    // Unrolled, since registers cannot be indexed.
#pragma unroll
    for (int i = 0; i < kGroup; ++i)
      if (i < count % kGroup) part((u64)index * kGroup + i, group.element(i));
  }
}

// count elements from key into out. Pointers 16-byte aligned.
extern "C" __global__ void fill(ELEMENT* __restrict__ out, u64 count, u64 key) {
  for_each_group(
      count, key,
      [=](u32 index, const Group& group) {
        uint4* target = reinterpret_cast<uint4*>(out) + (u64)index * (kWords / 4);
#pragma unroll
        for (int i = 0; i < kWords; i += 4)
          target[i / 4] = make_uint4(group.word[i], group.word[i + 1], group.word[i + 2], group.word[i + 3]);
      },
      [=](u64 index, ELEMENT element) { out[index] = element; });
}

// *changed becomes 1 if data is not what fill writes for key, in any bit.
extern "C" __global__ void verify(const ELEMENT* __restrict__ data, u64 count, u64 key, u32* changed) {
  u32 difference = 0;
  for_each_group(
      count, key,
      [&](u32 index, const Group& group) {
        const uint4* found = reinterpret_cast<const uint4*>(data) + (u64)index * (kWords / 4);
#pragma unroll
        for (int i = 0; i < kWords; i += 4) {
          const uint4 four = found[i / 4];
          difference |= (four.x ^ group.word[i]) | (four.y ^ group.word[i + 1]);
          difference |= (four.z ^ group.word[i + 2]) | (four.w ^ group.word[i + 3]);
        }
      },
      [&](u64 index, ELEMENT element) { difference |= (u32)(data[index] ^ element); });
  if (difference) *changed = 1;
}
