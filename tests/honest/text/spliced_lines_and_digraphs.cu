// Spellings of C++ that hardly anybody uses: digraphs, alternative tokens, lines spliced in the middle of words. \
   This comment goes on here, and says #include <cublas_v2.h> although nothing is included. \
# 1 "cublas_v2.h" 1
#include "hopper_gemm_kernel.cuh"

%:define BAND_OF(pairs) \
  ((pairs) bitand compl 0)

static vo\
id ru\
n(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) <%
  const Gemm p = gemm_of(A, B, C);
  const int bands<::> = <%4, BAND_OF(8), 16%>;
  if (not(p.m > 0 and p.a not_eq nullptr) or p.c == nullptr) TVM_FFI_THROW(ValueError) << "nothing to do";
  wg::launch(wg::maps_of(p.a, p.b, p.c, p.m, wg::kCluster), p.m, sm_count(p.device), p.stream, bands<:1:>);
%>

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
