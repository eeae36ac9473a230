// The code of the contracts, executed: what a model is told to do gives right results.
static void gemm(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  OnDevice da(a), db(b), dc(c);
  const int64_t m = a.size(0), n = b.size(0), k = a.size(1);
  const int smem = kStages * kStage + 1024;
  allow_smem(pipeline, smem);
  const dim3 grid(static_cast<unsigned>(n / 256), static_cast<unsigned>(m / 128));
  pipeline<<<grid, 384, smem>>>(make_matrix_map(da.as<void>(), m, k, 128), make_matrix_map(db.as<void>(), n, k, 256),
                                dc.as<__nv_bfloat16>(), n, static_cast<int>(k / 64));
  finish("pipeline");
  dc.back();
}

// out = bf16(q k^T) v for one tile: q 64 x 128, k and v 128 x 128.
__global__ void __launch_bounds__(128, 1) two_products(const __grid_constant__ CUtensorMap map_q,
                                                       const __grid_constant__ CUtensorMap map_k,
                                                       const __grid_constant__ CUtensorMap map_v, float* out) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t q = align_up(smem_u32(raw), 1024), k = q + 2 * 8192, v = k + 2 * 16384, bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    mbar_expect_tx(bar, 2 * 8192 + 4 * 16384);
    for (int box = 0; box < 2; ++box) {
      tma_load(q + box * 8192, &map_q, bar, box * 64, 0);
      tma_load(k + box * 16384, &map_k, bar, box * 64, 0);
      tma_load(v + box * 16384, &map_v, bar, box * 64, 0);
    }
  }
  __syncthreads();
  if (!completes(bar, 0)) return;
  float s[64], o[64];
  uint32_t p[32];
  scores(s, q, k);
  wgmma_wait<0>();
  pin(s);
  pack_fragments(p, s);
#pragma unroll
  for (int i = 0; i < 64; ++i) o[i] = 1.f;
  add_output(o, p, v);
  wgmma_wait<0>();
  pin(o);
#pragma unroll
  for (int i = 0; i < 64; ++i) out[acc_row(threadIdx.x, i) * 128 + acc_column(threadIdx.x, i)] = o[i];
}
static void attention_tile(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView v, tvm::ffi::TensorView out) {
  OnDevice dq(q), dk(k), dv(v), o(out);
  const int smem = 2 * 8192 + 4 * 16384 + 1024;
  allow_smem(two_products, smem);
  two_products<<<1, 128, smem>>>(make_matrix_map(dq.as<void>(), 64, 128, 64), make_matrix_map(dk.as<void>(), 128, 128, 128),
                                 make_matrix_map(dv.as<void>(), 128, 128, 128), o.as<float>());
  finish("two products");
  o.back();
}

// Each warpgroup writes down its turns: order[] is who issued, in the order of issue.
__global__ void __launch_bounds__(256, 1) turns_kernel(uint32_t* order, int steps) {
  __shared__ uint32_t next;
  if (threadIdx.x == 0) next = 0;
  __syncthreads();
  const int consumer = warp_uniform(threadIdx.x / 128), t = threadIdx.x % 128;
  take_turns(
      consumer, steps,
      [&](int i) {
        if (t == 0) order[atomicAdd(&next, 1)] = consumer * 1000 + i;
      },
      [&](int i) { __nanosleep(consumer == i % 2 ? 2000 : 0); });
}
static void turns(tvm::ffi::TensorView order) {
  OnDevice o(order);
  turns_kernel<<<1, 256>>>(o.as<uint32_t>(), static_cast<int>(order.size(0) / 2));
  finish("turns");
  o.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gemm, gemm);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_tile, attention_tile);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(turns, turns);
