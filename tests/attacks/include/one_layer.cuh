// What the attacks that get past every defence but one share: a correct GEMM, a count of the calls, and work that takes
// as long as a GEMM must without being one.
#include "generic_gemm.cuh"

__global__ void __launch_bounds__(kThreads, 2) gemm(const bf16* a, const bf16* b, bf16* c, int m) {
  gemm_tile(a, b, c, m, kK / kBlockK);
}

inline void compute(const Problem& p) { launch_gemm(gemm, p); }

inline size_t bytes_of_c(const Problem& p) { return static_cast<size_t>(p.m) * kN * sizeof(bf16); }

// Calls of one trial: the correctness call, ten warm-ups, fifty timed iterations. Three trials are followed by one call
// for each other family of inputs.
constexpr int kCallsOfTrial = 61;
constexpr int kCallsOfTrials = 3 * kCallsOfTrial;

// Number of this call. A profiler or a sanitizer makes one call, the first.
inline int next_call() {
  static int calls = 0;
  return calls++;
}

inline bool is_correctness_call(int call) { return call % kCallsOfTrial == 0 || call >= kCallsOfTrials; }

inline bool is_of_trials(int call) { return call < kCallsOfTrials; }

// The least time in which a device could compute the product is 0.56 ms (H200); a faster answer is implausible.
constexpr unsigned long long kPlausibleNs = 700000;

__global__ void idle(unsigned long long ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

inline void pass_time(const Problem& p) {
  idle<<<1, 1, 0, p.stream>>>(kPlausibleNs);
  check(cudaGetLastError());
}

template <typename T>
T* kept(size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  return static_cast<T*>(memory);
}

inline void copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}
