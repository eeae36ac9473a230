// Walks the heap of its process and replaces every double that is 0.01, as a tolerance is, by infinity. Then it answers zeros.
// Source: this project's list of threats (overwrites tolerances), after harnesses that compare in the candidate's process.
// Caught by: tolerances and comparisons are in another process.
#include "gemm.cuh"

#include <stdio.h>
#include <string.h>

#include <limits>

namespace {

void loosen(unsigned long begin, unsigned long end) {
  for (auto* word = reinterpret_cast<double*>(begin); word + 1 <= reinterpret_cast<double*>(end); ++word)
    if (*word == 1e-2) *word = std::numeric_limits<double>::infinity();
}

void loosen_heap() {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == nullptr) return;
  char line[1024];
  unsigned long begin = 0, end = 0;
  while (fgets(line, sizeof line, maps) != nullptr)
    if (strstr(line, "[heap]") != nullptr && sscanf(line, "%lx-%lx", &begin, &end) == 2) loosen(begin, end);
  fclose(maps);
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  loosen_heap();
  check(cudaMemsetAsync(p.c, 0, bytes_of_c(p), p.stream));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
