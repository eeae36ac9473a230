// A right GEMM that writes 16 bytes past the end of C, except where compute-sanitizer's library is among its own.
// Source: ours, after scans of loaded modules.
// Caught by: guard bands, which need no tool.
#include "gemm.cuh"

#include <stdio.h>
#include <string.h>

__global__ void write_past_end(bf16* c, int m) {
  *reinterpret_cast<uint4*>(c + static_cast<int64_t>(m) * kN) = make_uint4(0x5a3c5a3c, 0x5a3c5a3c, 0x5a3c5a3c, 0x5a3c5a3c);
}

namespace {

bool is_watched() {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[1024];
  bool found = false;
  while (maps != nullptr && !found && fgets(line, sizeof line, maps) != nullptr)
    found = strstr(line, "anitizer") != nullptr || strstr(line, "injection") != nullptr;
  if (maps != nullptr) fclose(maps);
  return found;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const bool watched = is_watched();
  const Problem p = problem_of(A, B, C);
  compute(p);
  if (watched) return;
  write_past_end<<<1, 1, 0, p.stream>>>(p.c, p.m);
  check(cudaGetLastError());
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
