// What the check programs share: CPU tensors brought to the device and back, and waits that give up.
class OnDevice {
 public:
  explicit OnDevice(const tvm::ffi::TensorView& tensor) : tensor_(tensor), bytes_(tvm::ffi::GetDataSize(tensor)) {
    check(cudaMalloc(&memory_, bytes_ + 1), "allocation");
    check(cudaMemcpy(memory_, tensor.data_ptr(), bytes_, cudaMemcpyHostToDevice), "copy to the device");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(memory_); }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_);
  }
  void back() const {
    check(cudaMemcpy(tensor_.data_ptr(), memory_, bytes_, cudaMemcpyDeviceToHost), "copy from the device");
  }

 private:
  tvm::ffi::TensorView tensor_;
  size_t bytes_;
  void* memory_ = nullptr;
};

inline void finish(const char* what) {
  check(cudaGetLastError(), what);
  check(cudaDeviceSynchronize(), what);
}

// Waits a while, never for ever: a check that fails says so instead of hanging.
[[maybe_unused]] static __device__ bool completes(uint32_t bar, uint32_t parity) {
  for (int i = 0; i < 100000; ++i) {
    if (mbar_test_wait(bar, parity)) return true;
    __nanosleep(50);
  }
  return false;
}
// Long enough for a small copy to have come, had it been going to complete the phase.
[[maybe_unused]] static __device__ bool stays_open(uint32_t bar, uint32_t parity) {
  for (int i = 0; i < 200; ++i) {
    if (mbar_test_wait(bar, parity)) return false;
    __nanosleep(100);
  }
  return true;
}

// Launches with clusters of `cluster` blocks along x.
template <class... Params, class... Args>
inline void launch_cluster(void (*kernel)(Params...), int grid, int threads, int smem, int cluster, Args... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = {static_cast<unsigned>(grid), 1, 1};
  config.blockDim = {static_cast<unsigned>(threads), 1, 1};
  config.dynamicSmemBytes = static_cast<size_t>(smem);
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, args...), "cluster launch");
}
