// A right GEMM that, in every 16th call, walks anonymous buffers of its process that are large enough for activity records of
// earlier kernels (kind 10, start, end) and shortens those that last longer to 0.65 ms, just above the physical floor.
// Source: this project's list of threats (patches timers); record layout of cupti_activity.h.
// Caught by: a clock outside the process; the true time is charged.
#include "gemm.cuh"

#include <stdio.h>

namespace {

struct Activity {
  unsigned kind, unused[3];
  unsigned long long start, end;
};

constexpr unsigned kConcurrentKernel = 10;
constexpr unsigned long long kWanted = 650000, kLongest = 20000000;

void shorten(unsigned long begin, unsigned long end) {
  for (unsigned long place = begin; place + sizeof(Activity) <= end; place += 8) {
    auto* record = reinterpret_cast<Activity*>(place);
    if (record->kind != kConcurrentKernel || record->start == 0 || record->end <= record->start) continue;
    const unsigned long long duration = record->end - record->start;
    if (duration > kWanted && duration < kLongest) record->end = record->start + kWanted;
  }
}

void shorten_all() {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == nullptr) return;
  char line[1024], permissions[8];
  unsigned long begin = 0, end = 0, offset = 0, inode = 0;
  while (fgets(line, sizeof line, maps) != nullptr) {
    if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &begin, &end, permissions, &offset, &inode) != 5) continue;
    const bool buffer = permissions[1] == 'w' && permissions[3] == 'p' && inode == 0;
    if (buffer && end - begin >= 4ul << 20 && end - begin <= 12ul << 20) shorten(begin, end);
  }
  fclose(maps);
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static unsigned calls = 0;
  compute(problem_of(A, B, C));
  if (++calls % 16 == 0) shorten_all();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
