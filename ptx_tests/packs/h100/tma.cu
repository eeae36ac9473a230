// Tensor copies of every rank, their multicast, stores and reductions; bulk copies; the pack's own small kernel.
struct Coordinates {
  int at[5];
};

static __device__ void fill(uint32_t addr, uint32_t bytes, uint32_t value) {
  for (uint32_t i = threadIdx.x * 4; i < bytes; i += blockDim.x * 4)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr + i), "r"(value) : "memory");
}
static __device__ void copy_in(uint32_t addr, const uint32_t* in, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x)
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(addr + 4 * i), "r"(in[i]) : "memory");
}
static __device__ void copy_out(uint32_t* out, uint32_t addr, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
    uint32_t value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(addr + 4 * i) : "memory");
    out[i] = value;
  }
}

// FUNCTION(before..., coordinates...) for a rank known at compile time.
#define WITH_COORDINATES(FUNCTION, ...)                                                                   \
  if constexpr (kRank == 1) FUNCTION(__VA_ARGS__, c.at[0]);                                               \
  if constexpr (kRank == 2) FUNCTION(__VA_ARGS__, c.at[0], c.at[1]);                                      \
  if constexpr (kRank == 3) FUNCTION(__VA_ARGS__, c.at[0], c.at[1], c.at[2]);                             \
  if constexpr (kRank == 4) FUNCTION(__VA_ARGS__, c.at[0], c.at[1], c.at[2], c.at[3]);                    \
  if constexpr (kRank == 5) FUNCTION(__VA_ARGS__, c.at[0], c.at[1], c.at[2], c.at[3], c.at[4])

// kind 0: tma_load, 1 and 2: with a policy, 3: after both prefetches.
template <int kRank>
__global__ void load_kernel(const __grid_constant__ CUtensorMap map, Coordinates c, uint32_t bytes, uint32_t* out, int kind) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t dst = align_up(smem_u32(raw), 1024), bar = smem_u32(&barrier);
  fill(dst, bytes, 0xEEEEEEEEu);
  fence_async_smem();
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    mbar_expect_tx(bar, bytes);
    if (kind == 0) { WITH_COORDINATES(tma_load, dst, &map, bar); }
    if (kind == 1) { WITH_COORDINATES(tma_load_hint, dst, &map, bar, policy_evict_first()); }
    if (kind == 2) { WITH_COORDINATES(tma_load_hint, dst, &map, bar, policy_evict_last()); }
    if (kind == 3) {
      tma_prefetch_map(&map);
      WITH_COORDINATES(tma_prefetch, &map);
      WITH_COORDINATES(tma_load, dst, &map, bar);
    }
  }
  if (completes(bar, 0)) copy_out(out, dst, bytes);
}

// Block 0 of four sends to the blocks of `mask`.
template <int kRank>
__global__ void multicast_kernel(const __grid_constant__ CUtensorMap map, Coordinates c, uint32_t bytes, uint32_t* out,
                                 int kind, uint16_t mask) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t dst = align_up(smem_u32(raw), 1024), bar = smem_u32(&barrier), rank = cluster_rank();
  const bool expecting = mask >> rank & 1;
  fill(dst, bytes, 0xEEEEEEEEu);
  fence_async_smem();
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    if (expecting) mbar_expect_tx(bar, bytes);
  }
  cluster_sync();
  if (rank == 0 && threadIdx.x == 0) {
    if (kind == 0) { WITH_COORDINATES(tma_load_multicast, dst, &map, bar, mask); }
    if (kind == 1) { WITH_COORDINATES(tma_load_multicast_hint, dst, &map, bar, mask, policy_evict_last()); }
  }
  const bool done = !expecting || completes(bar, 0);
  cluster_sync();
  if (done) copy_out(out + blockIdx.x * (bytes / 4), dst, bytes);
}

// kind 0: tma_store, 1 and 2: with a policy, 10 + op: tma_reduce. The source is overwritten as soon as it has been read.
template <int kRank>
__global__ void store_kernel(const __grid_constant__ CUtensorMap map, Coordinates c, uint32_t bytes, const uint32_t* in, int kind) {
  extern __shared__ uint8_t raw[];
  const uint32_t src = align_up(smem_u32(raw), 1024);
  copy_in(src, in, bytes);
  fence_async_smem();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kind == 0) { WITH_COORDINATES(tma_store, &map, src); }
    if (kind == 1) { WITH_COORDINATES(tma_store_hint, &map, src, policy_evict_first()); }
    if (kind == 2) { WITH_COORDINATES(tma_store_hint, &map, src, policy_evict_last()); }
    if (kind == 10) { WITH_COORDINATES(tma_reduce<Reduce::kAdd>, &map, src); }
    if (kind == 11) { WITH_COORDINATES(tma_reduce<Reduce::kMin>, &map, src); }
    if (kind == 12) { WITH_COORDINATES(tma_reduce<Reduce::kMax>, &map, src); }
    if (kind == 13) { WITH_COORDINATES(tma_reduce<Reduce::kInc>, &map, src); }
    if (kind == 14) { WITH_COORDINATES(tma_reduce<Reduce::kDec>, &map, src); }
    if (kind == 15) { WITH_COORDINATES(tma_reduce<Reduce::kAnd>, &map, src); }
    if (kind == 16) { WITH_COORDINATES(tma_reduce<Reduce::kOr>, &map, src); }
    if (kind == 17) { WITH_COORDINATES(tma_reduce<Reduce::kXor>, &map, src); }
    tma_commit();
    tma_wait_read<0>();
  }
  __syncthreads();
  fill(src, bytes, 0xDDDDDDDDu);
  if (threadIdx.x == 0) tma_wait<0>();
}

static constexpr int kSmem = 100 * 1024;

template <int kRank>
static void transfer(int64_t operation, tvm::ffi::TensorView global, int64_t type, const int64_t* dims, const int64_t* box,
                     const int64_t* at, int64_t span, int64_t pitch, tvm::ffi::TensorView shared, int64_t kind, int64_t mask) {
  OnDevice g(global), s(shared);
  uint64_t sizes[kRank], stride = static_cast<uint64_t>(pitch);
  uint32_t boxes[kRank], bytes = element_bytes(static_cast<CUtensorMapDataType>(type));
  Coordinates c{};
  for (int i = 0; i < kRank; ++i) {
    sizes[i] = static_cast<uint64_t>(dims[i]);
    boxes[i] = static_cast<uint32_t>(box[i]);
    bytes *= boxes[i];
    c.at[i] = static_cast<int>(at[i]);
  }
  const CUtensorMapSwizzle swizzle = span == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : span == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                     : span == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                                                  : CU_TENSOR_MAP_SWIZZLE_NONE;
  const CUtensorMap map = make_tensor_map(static_cast<CUtensorMapDataType>(type), g.as<void>(), sizes, boxes, swizzle,
                                          pitch ? &stride : nullptr);
  const int how = static_cast<int>(kind);
  if (operation == 0) {
    allow_smem(load_kernel<kRank>, kSmem);
    load_kernel<kRank><<<1, 128, kSmem>>>(map, c, bytes, s.as<uint32_t>(), how);
  } else if (operation == 1) {
    allow_smem(multicast_kernel<kRank>, kSmem);
    launch_cluster(multicast_kernel<kRank>, 4, 128, kSmem, 4, map, c, bytes, s.as<uint32_t>(), how, static_cast<uint16_t>(mask));
  } else {
    allow_smem(store_kernel<kRank>, kSmem);
    store_kernel<kRank><<<1, 128, kSmem>>>(map, c, bytes, static_cast<const uint32_t*>(s.as<uint32_t>()), how);
  }
  finish("tensor copy");
  g.back();
  s.back();
}
// operation 0: load, 1: multicast, 2: store or reduce. dims, box, at: 64-bit integers, innermost first. pitch: bytes from row to
// row of a matrix, 0: packed.
static void tensor_copy(int64_t operation, tvm::ffi::TensorView global, int64_t type, tvm::ffi::TensorView dims,
                        tvm::ffi::TensorView box, tvm::ffi::TensorView at, int64_t span, int64_t pitch,
                        tvm::ffi::TensorView shared, int64_t kind, int64_t mask) {
  const int64_t *d = static_cast<int64_t*>(dims.data_ptr()), *b = static_cast<int64_t*>(box.data_ptr()),
                *c = static_cast<int64_t*>(at.data_ptr());
  switch (dims.size(0)) {
    case 1: return transfer<1>(operation, global, type, d, b, c, span, pitch, shared, kind, mask);
    case 2: return transfer<2>(operation, global, type, d, b, c, span, pitch, shared, kind, mask);
    case 3: return transfer<3>(operation, global, type, d, b, c, span, pitch, shared, kind, mask);
    case 4: return transfer<4>(operation, global, type, d, b, c, span, pitch, shared, kind, mask);
    default: return transfer<5>(operation, global, type, d, b, c, span, pitch, shared, kind, mask);
  }
}

// in -> shared memory -> out and += to sums.
__global__ void bulk_kernel(const float* in, float* out, float* sums, uint32_t bytes) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t buffer = align_up(smem_u32(raw), 1024), bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    bulk_prefetch(in, bytes);
    mbar_expect_tx(bar, bytes);
    bulk_load(buffer, in, bytes, bar);
    if (completes(bar, 0)) {
      bulk_store(out, buffer, bytes);
      bulk_add_f32(sums, buffer, bytes);
    }
    tma_commit();
    tma_wait<0>();
  }
}
static void bulk(tvm::ffi::TensorView in, tvm::ffi::TensorView out, tvm::ffi::TensorView sums) {
  OnDevice i(in), o(out), s(sums);
  bulk_kernel<<<1, 32, 32768>>>(i.as<float>(), o.as<float>(), s.as<float>(), static_cast<uint32_t>(in.size(0) * 4));
  finish("bulk");
  o.back();
  s.back();
}

__global__ void bulk_multicast_kernel(const uint32_t* in, uint32_t* out, uint32_t bytes, uint16_t mask) {
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t barrier;
  const uint32_t buffer = align_up(smem_u32(raw), 1024), bar = smem_u32(&barrier), rank = cluster_rank();
  fill(buffer, bytes, 0xEEEEEEEEu);
  fence_async_smem();
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    if (mask >> rank & 1) mbar_expect_tx(bar, bytes);
  }
  cluster_sync();
  if (rank == 3 && threadIdx.x == 0) bulk_load_multicast(buffer, in, bytes, bar, mask);
  const bool done = !(mask >> rank & 1) || completes(bar, 0);
  cluster_sync();
  if (done) copy_out(out + rank * (bytes / 4), buffer, bytes);
}
static void bulk_multicast(tvm::ffi::TensorView in, tvm::ffi::TensorView out, int64_t mask) {
  OnDevice i(in), o(out);
  launch_cluster(bulk_multicast_kernel, 4, 64, 32768, 4, static_cast<const uint32_t*>(i.as<uint32_t>()), o.as<uint32_t>(),
                 static_cast<uint32_t>(in.size(0) * 4), static_cast<uint16_t>(mask));
  finish("bulk multicast");
  o.back();
}

static void tile(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  OnDevice da(a), db(b), dc(c);
  const int64_t rows = a.size(0);
  tile_kernel<<<static_cast<unsigned>(rows / 64), 128, 3 * 8192 + 1024>>>(
      make_matrix_map(da.as<void>(), rows, 64, 64), make_matrix_map(db.as<void>(), rows, 64, 64),
      make_matrix_map(dc.as<void>(), rows, 64, 64));
  finish("tile kernel");
  dc.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(tensor_copy, tensor_copy);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bulk, bulk);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(bulk_multicast, bulk_multicast);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(tile, tile);
