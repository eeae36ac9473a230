// The operands of gemm_n7168_k5120, checked: C[M,N] = A[M,K] B[N,K]^T with N = 7168, K = 5120, M a multiple of 128.
#include "hopper_host.cuh"

using bf16 = __nv_bfloat16;

constexpr int kN = 7168;
constexpr int kK = 5120;

struct Gemm {
  const bf16* a;
  const bf16* b;
  bf16* c;
  int m;
  int device;
  cudaStream_t stream;
};

inline Gemm gemm_of(const tvm::ffi::TensorView& A, const tvm::ffi::TensorView& B, const tvm::ffi::TensorView& C) {
  if (A.ndim() != 2 || B.ndim() != 2 || C.ndim() != 2 || A.size(1) != kK || B.size(0) != kN || B.size(1) != kK ||
      C.size(0) != A.size(0) || C.size(1) != kN)
    TVM_FFI_THROW(ValueError) << "expected A[M," << kK << "], B[" << kN << "," << kK << "], C[M," << kN << "]";
  const int64_t m = A.size(0);
  if (m <= 0 || m % 128 != 0 || m > (1 << 24)) TVM_FFI_THROW(ValueError) << "M must be a positive multiple of 128, got " << m;
  return {static_cast<const bf16*>(A.data_ptr()), static_cast<const bf16*>(B.data_ptr()), static_cast<bf16*>(C.data_ptr()),
          static_cast<int>(m), A.device().device_id, stream_of(A)};
}

inline int sm_count(int device) {
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return sms;
}
