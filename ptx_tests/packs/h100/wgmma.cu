// Products of every width, major and source, and the layouts of their operands. K = 64: four products of 16 each.
static __device__ void copy_in(uint32_t addr, const uint32_t* in, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr + 4 * i), "r"(in[i]) : "memory");
  fence_async_smem();
}
template <int kN>
static __device__ void read_tile(float (&d)[kN], const float* tile) {
#pragma unroll
  for (int i = 0; i < kN; ++i) d[i] = tile[acc_row(threadIdx.x, i) * (2 * kN) + acc_column(threadIdx.x, i)];
}
template <int kN>
static __device__ void write_tile(float* tile, const float (&d)[kN]) {
#pragma unroll
  for (int i = 0; i < kN; ++i) tile[acc_row(threadIdx.x, i) * (2 * kN) + acc_column(threadIdx.x, i)] = d[i];
}

// Four products on d: both operands in shared memory, or A in registers.
template <int kTransA, int kTransB, int kN>
static __device__ void products_ss(float (&d)[kN], uint32_t a, uint32_t b, int accumulate) {
  const uint64_t da = kTransA ? desc_mn_major(a, 0) : desc_k_major(a);
  const uint64_t db = kTransB ? desc_mn_major(b, 8192) : desc_k_major(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k)
    wgmma_ss<kTransA, kTransB>(d, da + k * (kTransA ? 128 : 2), db + k * (kTransB ? 128 : 2), accumulate || k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
}
template <int kTransB, int kN>
static __device__ void products_rs(float (&d)[kN], const uint32_t* a, uint32_t b, int accumulate) {
  const uint64_t db = kTransB ? desc_mn_major(b, 8192) : desc_k_major(b);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_rs<kTransB>(d, a + 4 * k, db + k * (kTransB ? 128 : 2), accumulate || k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
}

// c += A B where `accumulate`, else c = A B; mode: trans_b + 2 trans_a, or 4 + trans_b with A through registers. a, b: bytes as
// they lie in shared memory, 128-byte swizzle; A through registers: 64 x 64, FP32, row-major. One kernel for all modes, since
// most of what there is to compile brings c to the accumulators and back.
template <int kN>
__global__ void __launch_bounds__(128, 1)
    product_kernel(const uint32_t* a, const uint32_t* b, uint32_t b_bytes, float* c, int mode, int accumulate) {
  extern __shared__ uint8_t raw[];
  const uint32_t sa = align_up(smem_u32(raw), 1024), sb = sa + 8192;
  if (mode < 4) copy_in(sa, a, 8192);
  copy_in(sb, b, b_bytes);
  __syncthreads();
  float d[kN / 2];
  read_tile(d, c);
  if (mode < 4) {
    if (mode == 0) products_ss<0, 0>(d, sa, sb, accumulate);
    if (mode == 1) products_ss<0, 1>(d, sa, sb, accumulate);
    if (mode == 2) products_ss<1, 0>(d, sa, sb, accumulate);
    if (mode == 3) products_ss<1, 1>(d, sa, sb, accumulate);
  } else {
    float tile[32];
    read_tile(tile, reinterpret_cast<const float*>(a));
    uint32_t fragments[16];
    pack_fragments(fragments, tile);
    if (mode == 4) products_rs<0>(d, fragments, sb, accumulate);
    if (mode == 5) products_rs<1>(d, fragments, sb, accumulate);
  }
  write_tile(c, d);
}
template <int kN>
static void choose(int64_t n, int mode, const OnDevice& a, const OnDevice& b, uint32_t bytes, const OnDevice& c, int accumulate) {
  if (n == kN) {
    product_kernel<kN><<<1, 128, 8192 + 32768 + 1024>>>(a.as<uint32_t>(), b.as<uint32_t>(), bytes, c.as<float>(), mode, accumulate);
  } else if constexpr (kN > 8) {
    choose<kN - 8>(n, mode, a, b, bytes, c, accumulate);
  }
}
static void product(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c, bool registers, int64_t trans_a,
                    int64_t trans_b, int64_t accumulate) {
  OnDevice da(a), db(b), dc(c);
  const int mode = static_cast<int>(trans_b) + (registers ? 4 : 2 * static_cast<int>(trans_a));
  choose<256>(c.size(1), mode, da, db, static_cast<uint32_t>(b.size(0)), dc, static_cast<int>(accumulate));
  finish("product");
  dc.back();
}

// 64 x 64 x 64 with operands in boxes of kSwizzle bytes; 16: no swizzle, core matrices of 8 rows of 16 bytes.
template <int kSwizzle, int kTrans>
static __device__ uint64_t step(uint32_t tile, int k) {
  if constexpr (kSwizzle == 16) {
    // Boxes of 64 rows of 16 bytes: along the row's direction 1024 bytes to the next, along the rows 128.
    return kTrans ? smem_desc<16>(tile + k * 256, 128, 1024) : smem_desc<16>(tile + k * 2048, 1024, 128);
  } else if constexpr (kTrans) {
    return desc_mn_major<kSwizzle>(tile, 64 * kSwizzle) + k * kSwizzle;
  } else {
    return desc_k_major<kSwizzle>(tile + k * 32 / kSwizzle * (64 * kSwizzle)) + k * 32 % kSwizzle / 16;
  }
}
template <int kSwizzle, int kTransA, int kTransB>
__global__ void __launch_bounds__(128, 1) layout_kernel(const uint32_t* a, const uint32_t* b, float* c) {
  extern __shared__ uint8_t raw[];
  const uint32_t sa = align_up(smem_u32(raw), 1024), sb = sa + 8192;
  copy_in(sa, a, 8192);
  copy_in(sb, b, 8192);
  __syncthreads();
  float d[32];
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) wgmma_ss<kTransA, kTransB>(d, step<kSwizzle, kTransA>(sa, k), step<kSwizzle, kTransB>(sb, k), k > 0);
  wgmma_commit();
  wgmma_wait<0>();
  pin(d);
  write_tile(c, d);
}
template <int kSwizzle>
static void launch_layout(int trans_a, int trans_b, const OnDevice& a, const OnDevice& b, const OnDevice& c) {
  const int smem = 2 * 8192 + 1024;
  const uint32_t *pa = a.as<uint32_t>(), *pb = b.as<uint32_t>();
  float* pc = c.as<float>();
  if (trans_a && trans_b) layout_kernel<kSwizzle, 1, 1><<<1, 128, smem>>>(pa, pb, pc);
  if (trans_a && !trans_b) layout_kernel<kSwizzle, 1, 0><<<1, 128, smem>>>(pa, pb, pc);
  if (!trans_a && trans_b) layout_kernel<kSwizzle, 0, 1><<<1, 128, smem>>>(pa, pb, pc);
  if (!trans_a && !trans_b) layout_kernel<kSwizzle, 0, 0><<<1, 128, smem>>>(pa, pb, pc);
}
static void layout(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c, int64_t span, int64_t trans_a, int64_t trans_b) {
  OnDevice da(a), db(b), dc(c);
  const int ta = static_cast<int>(trans_a), tb = static_cast<int>(trans_b);
  if (span == 128) launch_layout<128>(ta, tb, da, db, dc);
  if (span == 64) launch_layout<64>(ta, tb, da, db, dc);
  if (span == 32) launch_layout<32>(ta, tb, da, db, dc);
  if (span == 16) launch_layout<16>(ta, tb, da, db, dc);
  finish("layout");
  dc.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(product, product);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(layout, layout);
