// Functions that only compute, on the host: no device is needed. The models are in host.py.
static int64_t host_swizzle(int64_t offset) { return swizzle_128b(static_cast<uint32_t>(offset)); }

// kind 0: smem_desc, 1: smem_desc_k_major, 2: smem_desc_mn_major. `out`: one 64-bit word.
static void host_descriptor(int64_t kind, int64_t addr, int64_t leading, int64_t stride, int64_t swizzle, int64_t base_offset,
                            tvm::ffi::TensorView out) {
  const uint32_t a = static_cast<uint32_t>(addr), l = static_cast<uint32_t>(leading), s = static_cast<uint32_t>(stride);
  *static_cast<uint64_t*>(out.data_ptr()) =
      kind == 0   ? smem_desc(a, l, s, static_cast<Swizzle>(swizzle), static_cast<uint32_t>(base_offset))
      : kind == 1 ? smem_desc_k_major(a)
                  : smem_desc_mn_major(a, l);
}

static int64_t host_instruction(int64_t a, int64_t b, int64_t m, int64_t n, int64_t flags) {
  return instr_desc(static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(m), static_cast<uint32_t>(n), flags & 1,
                    flags & 2, flags & 4, flags & 8);
}
static int64_t host_instruction_bf16(int64_t m, int64_t n, int64_t flags) {
  return instr_desc_bf16(static_cast<uint32_t>(m), static_cast<uint32_t>(n), flags & 1, flags & 2);
}
static int64_t host_instruction_mxf4(int64_t m, int64_t n, int64_t a_id, int64_t b_id) {
  return instr_desc_mxf4(static_cast<uint32_t>(m), static_cast<uint32_t>(n), static_cast<uint32_t>(a_id), static_cast<uint32_t>(b_id));
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_swizzle, host_swizzle);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_descriptor, host_descriptor);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_instruction, host_instruction);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_instruction_bf16, host_instruction_bf16);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(host_instruction_mxf4, host_instruction_mxf4);
