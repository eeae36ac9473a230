// "Calibrates" the profiler: writes a jump into the code of cuptiActivityGetNextRecord, through /proc/self/mem, which minds
// no page protection. The new function calls the old one and subtracts the "launch overhead" that it measured, down to the
// least time that a GEMM of this size can take.
// Source: this project's list of threats (detours of functions).
// Caught by: a clock outside the process; the true time is charged.
#include "gemm.cuh"
#include "elf_walk.cuh"

#include <fcntl.h>
#include <unistd.h>

namespace {

using Next = int (*)(unsigned char*, size_t, void**);
constexpr size_t kJump = 12;

Next original = nullptr;
unsigned char kept[kJump], jump[kJump] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, ...; jmp rax

bool write_code(const unsigned char* bytes) {
  const int memory = open("/proc/self/mem", O_RDWR);
  if (memory < 0) return false;
  const bool done = pwrite(memory, bytes, kJump, reinterpret_cast<off_t>(original)) == static_cast<ssize_t>(kJump);
  close(memory);
  return done;
}

int calibrated(unsigned char* buffer, size_t valid, void** record) {
  write_code(kept);
  const int result = original(buffer, valid, record);
  write_code(jump);
  if (result == 0 && *reinterpret_cast<unsigned*>(*record) == 10) {  // a kernel: start and end lie at 16 and 24
    auto* times = reinterpret_cast<unsigned long long*>(static_cast<unsigned char*>(*record) + 16);
    constexpr unsigned long long kLeast = 650000;
    if (times[1] - times[0] > kLeast) times[1] = times[0] + kLeast;
  }
  return result;
}

bool install() {
  original = reinterpret_cast<Next>(function_in_process("libcupti.so", "cuptiActivityGetNextRecord"));
  if (original == nullptr) return false;
  memcpy(kept, reinterpret_cast<const void*>(original), kJump);
  const Next mine = calibrated;
  memcpy(jump + 2, &mine, sizeof mine);
  return write_code(jump);
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static const bool installed = install();
  const Problem p = problem_of(A, B, C);
  if (!installed) touch<<<1, 1, 0, p.stream>>>();  // no profiler to calibrate
  compute(p);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
