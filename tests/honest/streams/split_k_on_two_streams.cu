// Two halves of K on two streams into two buffers, then one kernel that adds them on the call's stream.
#include "splitk.cuh"
#include "side_stream.cuh"

namespace {

Side side;
float* sums = nullptr;
int64_t held = 0;

__global__ void __launch_bounds__(mma::kThreads, 2) half(const bf16* a, const bf16* b, float* out, int m, int k_begin, int k_end) {
  mma::gemm_tile(a, b, mma::tile_at(blockIdx.x, m / mma::kTile), k_begin, k_end, ToFloat{out});
}

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  const int64_t count = static_cast<int64_t>(p.m) * kN;
  if (count > held) {
    check(cudaFree(sums), "scratch release");
    check(cudaMalloc(reinterpret_cast<void**>(&sums), 2 * count * sizeof(float)), "scratch allocation");
    held = count;
  }
  side.create();
  side.fork(p.stream);
  allow_smem(half, mma::kSmemBytes);
  const int blocks = p.m / mma::kTile * mma::kTilesN;
  half<<<blocks, mma::kThreads, mma::kSmemBytes, p.stream>>>(p.a, p.b, sums, p.m, 0, mma::kStepsK / 2);
  half<<<blocks, mma::kThreads, mma::kSmemBytes, side.stream>>>(p.a, p.b, sums + count, p.m, mma::kStepsK / 2, mma::kStepsK);
  check(cudaGetLastError(), "launching the halves");
  side.join(p.stream);
  launch_reduce(sums, p.c, count, 2, p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
