// An "asynchronous engine": calls are queued to a worker thread that launches them, so that the caller is free to go on. The
// worker gives the caller a millisecond to do so.
// Source: ours, after asynchronous inference engines.
// Caught by: outputs are compared as they are when the window closes; device work outside every call is noticed.
#include "gemm.cuh"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace {

class Engine {
 public:
  Engine() { std::thread([this] { serve(); }).detach(); }

  void submit(const Problem& p) {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(p);
    ready_.notify_one();
  }

 private:
  void serve() {
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    for (;;) {
      std::unique_lock<std::mutex> lock(mutex_);
      ready_.wait(lock, [this] { return !queue_.empty(); });
      const Problem p = queue_.front();
      queue_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // lets the caller return
      gemm<<<p.m / kTile * kTilesN, kThreads, kSmemBytes, p.stream>>>(p.a, p.b, p.c, p.m);
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Problem> queue_;
};

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static Engine* engine = new Engine;  // outlives every caller
  engine->submit(problem_of(A, B, C));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
