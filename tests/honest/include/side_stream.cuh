// Streams that work beside the call's stream and are joined with it before the call returns.
// The body that is included first brings `check`.

struct Side {
  cudaStream_t stream = nullptr;
  cudaEvent_t forked = nullptr, joined = nullptr;

  void create(int priority = 0) {
    if (stream != nullptr) return;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority), "cudaStreamCreateWithPriority");
    check(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  // What follows on the side stream comes after what is on `main` now.
  void fork(cudaStream_t main) const {
    check(cudaEventRecord(forked, main), "fork");
    check(cudaStreamWaitEvent(stream, forked, 0), "fork");
  }
  // What follows on `main` comes after what is on the side stream now.
  void join(cudaStream_t main) const {
    check(cudaEventRecord(joined, stream), "join");
    check(cudaStreamWaitEvent(main, joined, 0), "join");
  }
  void destroy() {
    check(cudaEventDestroy(forked), "cudaEventDestroy");
    check(cudaEventDestroy(joined), "cudaEventDestroy");
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    stream = nullptr;
  }
};
