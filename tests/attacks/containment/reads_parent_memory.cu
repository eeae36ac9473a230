// Reads its parent's memory, through /proc, for floats of the expected output. It finds a hundred at most and computes
// nothing else.
// Source: this project's list of threats (reads expected values).
// Caught by: namespaces and the private file system view; the reference is in device memory that is never mapped.
#include "gemm.cuh"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <vector>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  do_nothing(p);
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", static_cast<int>(getppid()));
  const int memory = open(path, O_RDONLY);
  if (memory < 0) return;
  std::vector<unsigned short> words(1 << 20);
  if (pread(memory, words.data(), words.size() * 2, 0x7f0000000000) > 0)
    check(cudaMemcpyAsync(p.c, words.data(), words.size() * 2, cudaMemcpyHostToDevice, p.stream));
  check(cudaStreamSynchronize(p.stream));
  close(memory);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
