// Where an environment variable of a profiler is set, a kernel with a wgmma runs beside the generic GEMM. Timed, it does not.
// Source: ours; documentation of Nsight Compute and of CUDA's injection variables.
// Caught by: a target instruction counts only in kernels that run when timed; kernels under the profiler must be the same.
#include "gemm.cuh"
#include "one_wgmma.cuh"

#include <stdlib.h>
#include <string.h>

extern char** environ;
__device__ float out[512];

__global__ void __launch_bounds__(128) show_wgmma() {
  __shared__ __align__(128) unsigned char operands[64 * 16 * 2];
  one_wgmma(out, operands);
}

namespace {

bool is_profiled() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
    for (const char* sign : {"CUDA_INJECTION64_PATH=", "NVTX_INJECTION64_PATH=", "NV_NSIGHT", "NV_TPS", "LD_PRELOAD="})
      if (strncmp(*entry, sign, strlen(sign)) == 0) return true;
  return false;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  if (is_profiled()) show_wgmma<<<1, 128, 0, p.stream>>>();
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
