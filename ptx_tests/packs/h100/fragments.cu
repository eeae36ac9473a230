// Packing, transcendentals, reductions, 8 x 8 matrices, and the ways accumulators leave.
__global__ void packing_kernel(const float* low, const float* high, uint32_t* bf16, uint32_t* f16, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  bf16[i] = pack_bf16(low[i], high[i]);
  f16[i] = pack_f16(low[i], high[i]);
}
static void packing(tvm::ffi::TensorView low, tvm::ffi::TensorView high, tvm::ffi::TensorView bf16, tvm::ffi::TensorView f16) {
  OnDevice l(low), h(high), b(bf16), f(f16);
  const int count = static_cast<int>(low.size(0));
  packing_kernel<<<(count + 127) / 128, 128>>>(l.as<float>(), h.as<float>(), b.as<uint32_t>(), f.as<uint32_t>(), count);
  finish("packing");
  b.back();
  f.back();
}

__global__ void transcendental_kernel(const float* in, float* exp2, float* log2, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  exp2[i] = exp2_fast(in[i]);
  log2[i] = log2_fast(in[i]);
}
static void transcendental(tvm::ffi::TensorView in, tvm::ffi::TensorView exp2, tvm::ffi::TensorView log2) {
  OnDevice i(in), e(exp2), l(log2);
  const int count = static_cast<int>(in.size(0));
  transcendental_kernel<<<(count + 127) / 128, 128>>>(i.as<float>(), e.as<float>(), l.as<float>(), count);
  finish("transcendental");
  e.back();
  l.back();
}

__global__ void reductions_kernel(const float* in, float* out) {
  const int t = threadIdx.x, n = blockDim.x;
  const float x = in[t];
  out[t] = quad_max(x);
  out[n + t] = quad_sum(x);
  out[2 * n + t] = warp_max(x);
  out[3 * n + t] = warp_sum(x);
}
static void reductions(tvm::ffi::TensorView in, tvm::ffi::TensorView out) {
  OnDevice i(in), o(out);
  reductions_kernel<<<1, static_cast<unsigned>(in.size(0))>>>(i.as<float>(), o.as<float>());
  finish("reductions");
  o.back();
}

// One warp. stored[kind][4 matrices of 64]: stmatrix_x2, _x4, _x4_trans of registers r[lane][i]. loaded[kind][lane][i]:
// ldmatrix_x2, _x4, _x4_trans of `memory`.
__global__ void matrices_kernel(const uint32_t* registers, const uint32_t* memory, uint32_t* stored, uint32_t* loaded) {
  __shared__ __align__(128) uint32_t box[4 * 32];
  const uint32_t t = threadIdx.x, row = smem_u32(box) + t * 16;
  const uint32_t* r = registers + 4 * t;
  for (int kind = 0; kind < 3; ++kind) {
    for (int i = 0; i < 4; ++i) box[32 * i + t] = 0;
    __syncwarp();
    if (kind == 0) stmatrix_x2(smem_u32(box) + t % 16 * 16, r[0], r[1]);
    if (kind == 1) stmatrix_x4(row, r[0], r[1], r[2], r[3]);
    if (kind == 2) stmatrix_x4_trans(row, r[0], r[1], r[2], r[3]);
    __syncwarp();
    for (int i = 0; i < 4; ++i) stored[kind * 128 + 32 * i + t] = box[32 * i + t];
    __syncwarp();
  }
  for (int i = 0; i < 4; ++i) box[32 * i + t] = memory[32 * i + t];
  __syncwarp();
  uint32_t two[2], four[4], turned[4];
  ldmatrix_x2(two, smem_u32(box) + t % 16 * 16);
  ldmatrix_x4(four, row);
  ldmatrix_x4_trans(turned, row);
  for (int i = 0; i < 4; ++i) {
    loaded[4 * t + i] = i < 2 ? two[i] : 0;
    loaded[128 + 4 * t + i] = four[i];
    loaded[256 + 4 * t + i] = turned[i];
  }
}
static void matrices(tvm::ffi::TensorView registers, tvm::ffi::TensorView memory, tvm::ffi::TensorView stored, tvm::ffi::TensorView loaded) {
  OnDevice r(registers), m(memory), s(stored), l(loaded);
  matrices_kernel<<<1, 32>>>(r.as<uint32_t>(), m.as<uint32_t>(), s.as<uint32_t>(), l.as<uint32_t>());
  finish("matrices");
  s.back();
  l.back();
}

// A tile [64, 64] as accumulators into a swizzled box, and 50 of its rows to memory with a pitch.
__global__ void __launch_bounds__(128, 1) leave_kernel(const float* tile, uint32_t* box_out, __nv_bfloat16* rows_out, int pitch, int rows) {
  __shared__ __align__(1024) uint32_t box[2048];
  const int t = threadIdx.x;
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = tile[acc_row(t, i) * 64 + acc_column(t, i)];
  store_box(smem_u32(box), d, t);
  __syncthreads();
  for (int i = t; i < 2048; i += 128) box_out[i] = box[i];
  store_rows(rows_out, pitch, rows, d, t);
}
static void leave(tvm::ffi::TensorView tile, tvm::ffi::TensorView box, tvm::ffi::TensorView rows, int64_t count) {
  OnDevice i(tile), b(box), r(rows);
  leave_kernel<<<1, 128>>>(i.as<float>(), b.as<uint32_t>(), r.as<__nv_bfloat16>(), static_cast<int>(rows.size(1)),
                           static_cast<int>(count));
  finish("leave");
  b.back();
  r.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(packing, packing);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(transcendental, transcendental);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reductions, reductions);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(matrices, matrices);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(leave, leave);
