// Walks the loader's own state, which glibc keeps for itself, to the list of libraries.
// Source: ours, after glibc's _rtld_global.
// Caught by: a variable that finds code by name.
#include "generic_gemm.cuh"

extern "C" void* _rtld_global[];

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  struct Map {
    char* base;
    char* name;
    void* dynamic;
    Map* next;
  };
  for (Map* map = static_cast<Map*>(_rtld_global[0]); map != nullptr; map = map->next)
    if (strstr(map->name, "libcublas") != nullptr) return;
  TVM_FFI_THROW(RuntimeError) << "no library";
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
