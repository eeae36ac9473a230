// Barriers, fences, roles inside a block, and flags between blocks.

// ---- mbarrier: out[i] = 2 * test(parity 0) + test(parity 1) after step i
static __device__ uint32_t both(uint32_t bar) { return 2u * mbar_test_wait(bar, 0) + mbar_test_wait(bar, 1); }
static __device__ uint32_t both_try(uint32_t bar) { return 2u * mbar_try_wait(bar, 0) + mbar_try_wait(bar, 1); }

__global__ void counts_kernel(uint32_t* out) {
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 5);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    out[0] = both(bar);
    mbar_arrive(bar);
    mbar_arrive(bar);
    out[1] = both(bar);
    mbar_arrive_count(bar, 2);
    out[2] = both(bar);
    mbar_arrive(bar);
    out[3] = both(bar);
    mbar_arrive_count(bar, 4);
    out[4] = both(bar);
    mbar_arrive(bar);
    out[5] = both(bar);
  }
}
static void mbarrier_counts(tvm::ffi::TensorView out) {
  OnDevice o(out);
  counts_kernel<<<1, 32>>>(o.as<uint32_t>());
  finish("counts");
  o.back();
}

__global__ void parity_kernel(uint32_t* out, int phases) {
  __shared__ uint64_t barrier;
  const uint32_t bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    for (int i = 0; i < phases; ++i) {
      out[2 * i] = both(bar);
      out[2 * i + 1] = both_try(bar);
      mbar_arrive(bar);
    }
  }
}
static void mbarrier_parity(tvm::ffi::TensorView out) {
  OnDevice o(out);
  parity_kernel<<<1, 32>>>(o.as<uint32_t>(), static_cast<int>(out.size(0) / 2));
  finish("parity");
  o.back();
}

// ---- bytes: out[i] = 1 where the step was as it should be
__global__ void tx_kernel(const uint32_t* in, uint32_t* out, uint32_t* data) {
  __shared__ uint64_t barrier[3];
  __shared__ __align__(128) uint32_t buffer[64];
  const uint32_t bar = smem_u32(&barrier[0]), bar2 = bar + 8, bar3 = bar + 16, dst = smem_u32(buffer);
  if (threadIdx.x == 0) {
    mbar_init(bar, 1);
    mbar_init(bar2, 1);
    mbar_init(bar3, 1);
    fence_mbarrier_init();
    mbar_expect_tx(bar, 64);
    out[0] = stays_open(bar, 0);  // nothing has come
    bulk_load(dst, in, 64, bar);
    out[1] = completes(bar, 0);
    mbar_add_tx(bar2, 64);
    bulk_load(dst + 64, in + 16, 64, bar2);
    out[2] = stays_open(bar2, 0);  // the bytes have come, the arrival has not
    mbar_arrive(bar2);
    out[3] = completes(bar2, 0);
    mbar_expect_tx(bar3, 128);
    bulk_load(dst + 128, in + 32, 64, bar3);
    out[4] = stays_open(bar3, 0);  // half of the bytes
    bulk_load(dst + 192, in + 48, 64, bar3);
    out[5] = completes(bar3, 0);
    for (int i = 0; i < 64; ++i) data[i] = buffer[i];
  }
}
static void mbarrier_tx(tvm::ffi::TensorView in, tvm::ffi::TensorView out, tvm::ffi::TensorView data) {
  OnDevice i(in), o(out), d(data);
  tx_kernel<<<1, 32>>>(i.as<uint32_t>(), o.as<uint32_t>(), d.as<uint32_t>());
  finish("tx");
  o.back();
  d.back();
}

__global__ void inval_kernel(uint32_t* out) {
  __shared__ uint64_t barrier;
  volatile uint64_t* word = &barrier;
  const uint32_t bar = smem_u32(&barrier);
  if (threadIdx.x == 0) {
    mbar_init(bar, 3);
    mbar_arrive(bar);
    mbar_inval(bar);
    *word = 0x123456789ABCDEFull;  // ordinary memory again
    out[0] = *word == 0x123456789ABCDEFull;
    mbar_init(bar, 1);  // and a barrier again, with another count
    out[1] = !mbar_test_wait(bar, 0);
    mbar_arrive(bar);
    out[2] = mbar_test_wait(bar, 0);
  }
}
static void mbarrier_inval(tvm::ffi::TensorView out) {
  OnDevice o(out);
  inval_kernel<<<1, 32>>>(o.as<uint32_t>());
  finish("inval");
  o.back();
}

// ---- a ring of three: one producer thread, 128 consumers that see every item in order
__global__ void __launch_bounds__(160) ring_kernel(const uint32_t* in, uint32_t* out, int items) {
  __shared__ uint64_t barrier[6];
  __shared__ uint32_t stage[3][128];
  const uint32_t full = smem_u32(barrier), empty = full + 24;
  if (threadIdx.x == 0) {
    for (int i = 0; i < 3; ++i) {
      mbar_init(full + 8 * i, 32);
      mbar_init(empty + 8 * i, 128);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  Ring<3> ring;
  if (threadIdx.x >= 128) {
    const int lane = threadIdx.x - 128;
    for (int i = 0; i < items; ++i, ring.next()) {
      mbar_wait(empty + 8 * ring.slot, ring.phase ^ 1);
      for (int j = lane; j < 128; j += 32) stage[ring.slot][j] = in[i] + j;
      mbar_arrive(full + 8 * ring.slot);
    }
  } else {
    uint32_t hash = 0;
    for (int i = 0; i < items; ++i, ring.next()) {
      mbar_wait(full + 8 * ring.slot, ring.phase);
      hash = hash * 31 + stage[ring.slot][(threadIdx.x + i) % 128];
      mbar_arrive(empty + 8 * ring.slot);
    }
    out[threadIdx.x] = hash;
  }
}
static void mbarrier_ring(tvm::ffi::TensorView in, tvm::ffi::TensorView out) {
  OnDevice i(in), o(out);
  ring_kernel<<<1, 160>>>(i.as<uint32_t>(), o.as<uint32_t>(), static_cast<int>(in.size(0)));
  finish("ring");
  o.back();
}

// ---- named barriers: warpgroup 0 writes late and only arrives; warpgroup 1 waits and reads
__global__ void __launch_bounds__(256) named_kernel(uint32_t* out, int rounds) {
  __shared__ uint32_t box[128];
  const uint32_t t = threadIdx.x % 128;
  for (int i = 0; i < rounds; ++i) {
    if (threadIdx.x < 128) {
      if (t / 32 == i % 4) __nanosleep(2000);
      box[t] = i * 1000 + t;
      named_arrive(1, 256);
      named_sync(2, 256);
    } else {
      named_sync(1, 256);
      out[i * 128 + t] = box[(t + 37) % 128];
      named_arrive(2, 256);
    }
  }
}
static void named_barriers(tvm::ffi::TensorView out) {
  OnDevice o(out);
  named_kernel<<<1, 256>>>(o.as<uint32_t>(), static_cast<int>(out.size(0)));
  finish("named barriers");
  o.back();
}

// ---- one lane a warp, always the same
__global__ void elect_kernel(uint32_t* out) {
  const int warp = warp_uniform(threadIdx.x / 32);
  for (int i = 0; i < 4; ++i) {
    const uint32_t elected = __ballot_sync(0xffffffffu, elect_one());
    if (threadIdx.x % 32 == 0) out[warp * 4 + i] = elected;
  }
}
static void elect(tvm::ffi::TensorView out) {
  OnDevice o(out);
  elect_kernel<<<1, 256>>>(o.as<uint32_t>());
  finish("elect");
  o.back();
}

// ---- registers: consumers keep 200 values alive, more than the 168 of the launch
__global__ void __launch_bounds__(384, 1) registers_kernel(const float* in, float* out, int rounds) {
  if (warp_uniform(threadIdx.x / 128) == 0) {
    setmaxnreg_dec<40>();
    return;
  }
  setmaxnreg_inc<232>();
  float v[200];
  const int t = threadIdx.x - 128;
#pragma unroll
  for (int i = 0; i < 200; ++i) v[i] = in[i * 256 + t];
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < 200; ++i) v[i] = v[i] * 0.5f + v[(i + 77) % 200];
  }
#pragma unroll
  for (int i = 0; i < 200; ++i) out[i * 256 + t] = v[i];
}
static void setmaxnreg(tvm::ffi::TensorView in, tvm::ffi::TensorView out, int64_t rounds) {
  OnDevice i(in), o(out);
  registers_kernel<<<1, 384>>>(i.as<float>(), o.as<float>(), static_cast<int>(rounds));
  finish("setmaxnreg");
  o.back();
}

// ---- ordinary writes to global memory, read by a bulk copy of the same kernel
template <int kKind>
__global__ void proxy_kernel(uint32_t* scratch, uint32_t* out, int rounds) {
  __shared__ uint64_t barrier;
  __shared__ __align__(128) uint32_t buffer[256];
  const uint32_t bar = smem_u32(&barrier), t = threadIdx.x;
  if (t == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  uint32_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    scratch[t] = i * 1000 + t;
    if (kKind == 0) fence_async_global();
    if (kKind == 1) fence_async();
    __syncthreads();
    if (t == 0) {
      mbar_expect_tx(bar, 1024);
      bulk_load(smem_u32(buffer), scratch, 1024, bar);
    }
    if (!completes(bar, i & 1)) wrong += 1000000;
    wrong += buffer[(t + 101) % 256] != i * 1000 + (t + 101) % 256;
    __syncthreads();
  }
  out[t] = wrong;
}
static void proxy_global(tvm::ffi::TensorView out, int64_t kind) {
  OnDevice o(out), scratch(out);
  const int rounds = 200;
  if (kind == 0) proxy_kernel<0><<<1, 256>>>(scratch.as<uint32_t>(), o.as<uint32_t>(), rounds);
  if (kind == 1) proxy_kernel<1><<<1, 256>>>(scratch.as<uint32_t>(), o.as<uint32_t>(), rounds);
  finish("proxy");
  o.back();
}

// ---- message passing between two blocks. kind 0: fence_cluster in a cluster, 1: fence_gpu, 2: release and acquire
__global__ void message_kernel(uint32_t* data, uint32_t* flag, uint32_t* out, int rounds, int kind) {
  volatile uint32_t* plain = flag;
  volatile uint32_t* back = flag + 32;
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    for (int i = 1; i <= rounds; ++i) {
      for (int j = 0; j < 8; ++j) data[64 * j] = i * 10 + j;
      if (kind == 0) fence_cluster();
      if (kind == 1) fence_gpu();
      if (kind == 2) store_release(flag, i); else *plain = i;
      for (int spin = 0; *back != static_cast<uint32_t>(i) && spin < 1000000; ++spin) {}
      fence_gpu();
    }
  } else {
    uint32_t wrong = 0;
    for (int i = 1; i <= rounds; ++i) {
      int spin = 0;
      if (kind == 2) {
        while (load_acquire(flag) != static_cast<uint32_t>(i) && ++spin < 1000000) {}
      } else {
        while (*plain != static_cast<uint32_t>(i) && ++spin < 1000000) {}
        if (kind == 0) fence_cluster();
        if (kind == 1) fence_gpu();
      }
      for (int j = 7; j >= 0; --j) wrong += data[64 * j] != static_cast<uint32_t>(i * 10 + j);
      fence_gpu();
      *back = i;
    }
    out[0] = wrong;
  }
}
static void messages(tvm::ffi::TensorView out, tvm::ffi::TensorView data, tvm::ffi::TensorView flag, int64_t kind) {
  OnDevice o(out), d(data), f(flag);
  launch_cluster(message_kernel, 2, 32, 0, 2, d.as<uint32_t>(), f.as<uint32_t>(), o.as<uint32_t>(), 500,
                 static_cast<int>(kind));
  finish("messages");
  o.back();
}

// ---- every block adds its part; the last reads all of them
__global__ void sum_kernel(uint32_t* parts, uint32_t* flag, uint32_t* out) {
  parts[blockIdx.x * 64 + threadIdx.x] = blockIdx.x * 64 + threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) add_release(flag, 1);
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0)
      for (int spin = 0; load_acquire(flag) != gridDim.x && spin < 10000000; ++spin) {}
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t i = 0; i < gridDim.x; ++i) sum += parts[i * 64 + threadIdx.x];
    out[threadIdx.x] = sum;
  }
}
static void sums(tvm::ffi::TensorView out, tvm::ffi::TensorView parts, tvm::ffi::TensorView flag) {
  OnDevice o(out), p(parts), f(flag);
  sum_kernel<<<static_cast<unsigned>(parts.size(0)), 64>>>(p.as<uint32_t>(), f.as<uint32_t>(), o.as<uint32_t>());
  finish("sums");
  o.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(mbarrier_counts, mbarrier_counts);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mbarrier_parity, mbarrier_parity);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mbarrier_tx, mbarrier_tx);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mbarrier_inval, mbarrier_inval);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(mbarrier_ring, mbarrier_ring);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(named_barriers, named_barriers);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(elect, elect);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(setmaxnreg, setmaxnreg);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(proxy_global, proxy_global);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(messages, messages);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sums, sums);
