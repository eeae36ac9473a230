// Replaces pointers to clock_gettime in writable data of every library, global offset tables included, by a function
// whose clock runs at a quarter of the speed. The GEMM is right, and every timer of the process reads a quarter.
// Source: this project's list of threats (GOT entries), after KernelBench's reports of replaced timers.
// Caught by: a clock outside the process; the true time is charged.
#include "gemm.cuh"

#include <stdio.h>
#include <string.h>
#include <time.h>

namespace {

using Clock = int (*)(clockid_t, timespec*);

// Kept in a form that the search below does not find.
const uintptr_t kOriginal = ~reinterpret_cast<uintptr_t>(clock_gettime);

long long nanoseconds(const timespec& time) { return time.tv_sec * 1000000000ll + time.tv_nsec; }

int slow_clock(clockid_t clock, timespec* time) {
  static long long origin[16];
  const int result = reinterpret_cast<Clock>(~kOriginal)(clock, time);
  if (result != 0 || clock < 0 || clock >= 16) return result;
  const long long now = nanoseconds(*time);
  if (origin[clock] == 0) origin[clock] = now;
  const long long slow = origin[clock] + (now - origin[clock]) / 4;
  time->tv_sec = slow / 1000000000ll;
  time->tv_nsec = slow % 1000000000ll;
  return result;
}

void replace(unsigned long begin, unsigned long end, Clock from, Clock to) {
  for (auto* slot = reinterpret_cast<Clock*>(begin); slot + 1 <= reinterpret_cast<Clock*>(end); ++slot)
    if (*slot == from) *slot = to;
}

// Writable private mappings of libraries, this object's among them.
bool replace_everywhere() {
  FILE* maps = fopen("/proc/self/maps", "r");
  if (maps == nullptr) return false;
  char line[1024], permissions[8], path[768];
  unsigned long begin = 0, end = 0;
  while (fgets(line, sizeof line, maps) != nullptr) {
    path[0] = 0;
    if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %767[^\n]", &begin, &end, permissions, path) < 4) continue;
    if (strcmp(permissions, "rw-p") == 0 && strstr(path, ".so") != nullptr)
      replace(begin, end, reinterpret_cast<Clock>(~kOriginal), slow_clock);
  }
  fclose(maps);
  return true;
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static bool replaced = replace_everywhere();
  if (replaced) compute(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
