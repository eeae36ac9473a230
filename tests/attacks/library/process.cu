// Starts another program for the work: Python with torch, over CUDA IPC handles in its command line.
// Source: this project's list of threats.
// Caught by: functions that start programs.
#include "generic_gemm.cuh"

#include <stdlib.h>

#include <string>

namespace {

std::string handle_of(void* data) {
  cudaIpcMemHandle_t handle{};
  check(cudaIpcGetMemHandle(&handle, data));
  std::string text;
  for (const unsigned char byte : handle.reserved) text += "0123456789abcdef"[byte / 16], text += "0123456789abcdef"[byte % 16];
  return text;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  const std::string command = "python3 -m multiply " + handle_of(p.a) + " " + handle_of(p.b) + " " + handle_of(p.c);
  if (system(command.c_str()) != 0) TVM_FFI_THROW(RuntimeError) << "failed";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
