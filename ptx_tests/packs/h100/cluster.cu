// Clusters: ranks, barriers, and the shared memory of other blocks.
__global__ void ids_kernel(uint32_t* out) {
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = cluster_rank();
    out[2 * blockIdx.x + 1] = cluster_size();
  }
}
static void cluster_ids(tvm::ffi::TensorView out, int64_t size) {
  OnDevice o(out);
  launch_cluster(ids_kernel, static_cast<int>(out.size(0)), 32, 0, static_cast<int>(size), o.as<uint32_t>());
  finish("ids");
  o.back();
}

// Each block writes late to its own shared memory; after the barrier its neighbour reads. kind 0: arrive and wait, 1: the
// relaxed arrive behind a fence, 2: cluster_sync.
__global__ void barriers_kernel(uint32_t* out, int rounds, int kind) {
  __shared__ uint32_t box[64];
  const uint32_t rank = cluster_rank(), next = (rank + 1) % cluster_size(), t = threadIdx.x;
  uint32_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    if (i % 2 == static_cast<int>(rank % 2)) __nanosleep(3000);
    box[t] = i * 1000 + rank * 100 + t;
    if (kind == 0) {
      cluster_arrive();
      cluster_wait();
    } else if (kind == 1) {
      fence_cluster();
      cluster_arrive_relaxed();
      cluster_wait();
    } else {
      cluster_sync();
    }
    wrong += dsmem_load(cluster_map(smem_u32(box + (t + 5) % 64), next)) != i * 1000 + next * 100 + (t + 5) % 64;
    cluster_sync();  // before the next round writes
  }
  out[blockIdx.x * 64 + t] = wrong;
}
static void cluster_barriers(tvm::ffi::TensorView out, int64_t kind) {
  OnDevice o(out);
  launch_cluster(barriers_kernel, 4, 64, 0, 4, o.as<uint32_t>(), 50, static_cast<int>(kind));
  finish("cluster barriers");
  o.back();
}

// Block r stores r * 1000 + t into block r + 1, at place t, and reads it there.
__global__ void dsmem_kernel(uint32_t* out) {
  __shared__ uint32_t box[64];
  const uint32_t rank = cluster_rank(), size = cluster_size(), t = threadIdx.x, remote = cluster_map(smem_u32(box + t), (rank + 1) % size);
  box[t] = 7;
  cluster_sync();
  dsmem_store(remote, rank * 1000 + t);
  cluster_sync();
  out[(blockIdx.x * 64 + t) * 2] = box[t];
  out[(blockIdx.x * 64 + t) * 2 + 1] = dsmem_load(remote);
  cluster_sync();
}
static void dsmem(tvm::ffi::TensorView out) {
  OnDevice o(out);
  launch_cluster(dsmem_kernel, 4, 64, 0, 4, o.as<uint32_t>());
  finish("dsmem");
  o.back();
}

// Block 1 writes into block 0 and arrives there; block 0 waits at cluster scope and reads. Then bytes: block 1 expects them
// on block 0's barrier and copies them there.
__global__ void remote_kernel(uint32_t* out, int rounds) {
  __shared__ uint64_t barrier[3];
  __shared__ __align__(128) uint32_t box[64], staging[64];
  const uint32_t bar = smem_u32(barrier), bytes_bar = bar + 8, plain_bar = bar + 16, rank = cluster_rank(), t = threadIdx.x;
  if (t == 0) {
    mbar_init(bar, 64);
    mbar_init(bytes_bar, 1);
    mbar_init(plain_bar, 128);
    fence_mbarrier_init();
  }
  cluster_sync();
  uint32_t wrong = 0;
  for (int i = 0; i < rounds; ++i) {
    if (rank == 1) {
      dsmem_store(cluster_map(smem_u32(box + t), 0), i * 100 + t);
      mbar_arrive_remote_release(bar, 0);
    } else {
      mbar_wait_cluster(bar, i & 1);
      wrong += box[(t + 11) % 64] != i * 100 + (t + 11) % 64;
    }
    mbar_arrive_remote(plain_bar, 0);  // both blocks to block 0
    if (rank == 0 && !completes(plain_bar, i & 1)) wrong += 10000;
    cluster_sync();
    if (rank == 1) {
      staging[t] = i * 10 + t;
      fence_async_smem();
      __syncthreads();
      if (t == 0) {
        mbar_expect_tx_remote(bytes_bar, 0, 256);
        dsmem_copy(cluster_map(smem_u32(box), 0), smem_u32(staging), 256, cluster_map(bytes_bar, 0));
      }
    } else {
      if (!completes(bytes_bar, i & 1)) wrong += 1000000;
      wrong += box[(t + 3) % 64] != i * 10 + (t + 3) % 64;
    }
    cluster_sync();
  }
  out[blockIdx.x * 64 + t] = wrong;
}
static void remote_arrivals(tvm::ffi::TensorView out) {
  OnDevice o(out);
  launch_cluster(remote_kernel, 2, 64, 0, 2, o.as<uint32_t>(), 40);
  finish("remote arrivals");
  o.back();
}

// Block 0 stores asynchronously into block 1, which waits for the bytes; then a bulk copy.
__global__ void async_kernel(uint32_t* out) {
  __shared__ uint64_t barrier;
  __shared__ __align__(128) uint32_t box[128], staging[64];
  const uint32_t bar = smem_u32(&barrier), rank = cluster_rank(), t = threadIdx.x;
  staging[t] = 5000 + t;
  box[t] = box[t + 64] = 1;
  fence_async_smem();
  if (t == 0) {
    mbar_init(bar, 1);
    fence_mbarrier_init();
    mbar_expect_tx(bar, 512);
  }
  cluster_sync();
  if (rank == 0) {
    const uint32_t remote_bar = cluster_map(bar, 1);
    dsmem_store_async(cluster_map(smem_u32(box + t), 1), 9000 + t, remote_bar);
    if (t == 0) dsmem_copy(cluster_map(smem_u32(box + 64), 1), smem_u32(staging), 256, remote_bar);
  } else {
    const bool done = completes(bar, 0);
    out[t] = done ? box[t] : 0;
    out[t + 64] = done ? box[t + 64] : 0;
  }
  cluster_sync();
}
static void dsmem_async(tvm::ffi::TensorView out) {
  OnDevice o(out);
  launch_cluster(async_kernel, 2, 64, 0, 2, o.as<uint32_t>());
  finish("dsmem async");
  o.back();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(cluster_ids, cluster_ids);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(cluster_barriers, cluster_barriers);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dsmem, dsmem);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(remote_arrivals, remote_arrivals);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(dsmem_async, dsmem_async);
