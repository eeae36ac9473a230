// Functions that only compute, on the host: no device is needed. The models are in arithmetic.py.
static int64_t host_swizzle(int64_t bytes, int64_t offset) {
  const uint32_t at = static_cast<uint32_t>(offset);
  return bytes == 128 ? swizzle<128>(at) : bytes == 64 ? swizzle<64>(at) : bytes == 32 ? swizzle<32>(at) : swizzle<16>(at);
}

template <int kSwizzle>
static uint64_t descriptor(int64_t kind, uint32_t addr, uint32_t lbo, uint32_t sbo) {
  if (kind == 0) return smem_desc<kSwizzle>(addr, lbo, sbo);
  return kind == 1 ? desc_k_major<kSwizzle>(addr) : desc_mn_major<kSwizzle>(addr, lbo);
}
// kind 0: smem_desc, 1: desc_k_major, 2: desc_mn_major. `out`: one 64-bit word.
static void host_descriptor(int64_t bytes, int64_t kind, int64_t addr, int64_t lbo, int64_t sbo, tvm::ffi::TensorView out) {
  const uint32_t a = static_cast<uint32_t>(addr), l = static_cast<uint32_t>(lbo), s = static_cast<uint32_t>(sbo);
  *static_cast<uint64_t*>(out.data_ptr()) = bytes == 128  ? descriptor<128>(kind, a, l, s)
                                            : bytes == 64 ? descriptor<64>(kind, a, l, s)
                                            : bytes == 32 ? descriptor<32>(kind, a, l, s)
                                                          : descriptor<16>(kind, a, l, s);
}

static int64_t host_acc_row(int64_t t, int64_t i) { return acc_row(static_cast<int>(t), static_cast<int>(i)); }
static int64_t host_acc_column(int64_t t, int64_t i) { return acc_column(static_cast<int>(t), static_cast<int>(i)); }
static int64_t host_align_up(int64_t x, int64_t n) { return align_up(static_cast<uint32_t>(x), static_cast<uint32_t>(n)); }
static int64_t host_element_bytes(int64_t type) { return element_bytes(static_cast<CUtensorMapDataType>(type)); }

// Slot and phase after each of the steps of a ring of three: out[step] = 2 * slot + phase.
static void host_ring(tvm::ffi::TensorView out) {
  Ring<3> ring;
  int32_t* at = static_cast<int32_t*>(out.data_ptr());
  for (int64_t i = 0; i < out.size(0); ++i, ring.next()) at[i] = 2 * ring.slot + static_cast<int>(ring.phase);
}

static void host_check(int64_t error) { check(static_cast<cudaError_t>(error), "the call"); }
static bool host_stream(tvm::ffi::TensorView t) {
  return stream_of(t) == TVMFFIEnvGetStream(t.device().device_type, t.device().device_id);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_swizzle, host_swizzle);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_descriptor, host_descriptor);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_acc_row, host_acc_row);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_acc_column, host_acc_column);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_align_up, host_align_up);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_element_bytes, host_element_bytes);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_ring, host_ring);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_check, host_check);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_stream, host_stream);
