// Eight bands of rows, dealt out to four streams of our own; the call's stream only forks and joins.
#include "tile_gemm.cuh"
#include "side_stream.cuh"

namespace {

constexpr int kStreams = 4;
constexpr int kBands = 8;
Side sides[kStreams];

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Gemm p = gemm_of(A, B, C);
  for (Side& side : sides) {
    side.create();
    side.fork(p.stream);
  }
  const int tiles = p.m / mma::kTile;
  for (int band = 0; band < kBands; ++band) {
    const int first = tiles * band / kBands, last = tiles * (band + 1) / kBands;
    if (first == last) continue;
    const int64_t row = static_cast<int64_t>(first) * mma::kTile;
    mma::launch(Gemm{p.a + row * kK, p.b, p.c + row * kN, (last - first) * mma::kTile, p.device, sides[band % kStreams].stream});
  }
  for (Side& side : sides) side.join(p.stream);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
