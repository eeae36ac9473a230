// C = A·Bᵀ, N = 7168, K = 5120 — ядро на wgmma, 行列の積, ضرب المصفوفات, μ-kernel, ∀ i,j: Cᵢⱼ = Σₖ Aᵢₖ·Bⱼₖ ✓
// Réglages: α = 1, β = 0; tuile 128 × 256; étapes ≥ 4. 🚀 «быстро» “quoted” ‚low‘ ␀ ﷺ zero\u200dwidth:​​ here.
#include "hopper_gemm_kernel.cuh"

namespace {

// Größe des Bandes (Höhe in Paaren) — 帯の高さ
constexpr int größe = 8;
constexpr const char* kMeldung = "M muß ein Vielfaches von 128 sein — 不正な形状 ❌";

void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  if (A.ndim() == 2 && A.size(0) % 128 != 0) TVM_FFI_THROW(ValueError) << kMeldung;  // ⚠ nur dann
  const Gemm p = gemm_of(A, B, C);
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream, größe);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
