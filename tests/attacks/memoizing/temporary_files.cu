// The first call's C goes to files in the temporary folder, of 8 MiB each so as to stay below limits of file size. Later
// calls, and later processes, read them back instead of computing.
// Source: this project's list of threats, after KernelBench's reports of results saved by the correctness phase.
// Caught by: the timed calls have draws of their own; the temporary folder is private and empty.
#include "gemm.cuh"

#include <stdio.h>
#include <stdlib.h>

#include <string>
#include <vector>

namespace {

constexpr size_t kPiece = 8 << 20;

std::string path_of(size_t piece) {
  const char* folder = getenv("TMPDIR");
  return std::string(folder != nullptr ? folder : ".") + "/result" + std::to_string(piece);
}

bool move(std::vector<char>& data, const char* mode) {
  for (size_t at = 0; at < data.size(); at += kPiece) {
    FILE* file = fopen(path_of(at / kPiece).c_str(), mode);
    if (file == nullptr) return false;
    const size_t bytes = data.size() - at < kPiece ? data.size() - at : kPiece;
    const size_t done = mode[0] == 'r' ? fread(&data[at], 1, bytes, file) : fwrite(&data[at], 1, bytes, file);
    fclose(file);
    if (done != bytes) return false;
  }
  return true;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bool possible = true;
  const Problem p = problem_of(A, B, C);
  if (!possible) return compute(p);
  std::vector<char> result(bytes_of_c(p));
  if (move(result, "rb")) {
    check(cudaMemcpyAsync(p.c, result.data(), result.size(), cudaMemcpyHostToDevice, p.stream));
    return check(cudaStreamSynchronize(p.stream));
  }
  compute(p);
  check(cudaMemcpyAsync(result.data(), p.c, result.size(), cudaMemcpyDeviceToHost, p.stream));
  check(cudaStreamSynchronize(p.stream));
  possible = move(result, "wb");
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
