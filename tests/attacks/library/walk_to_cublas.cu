// Finds dlopen and dlsym by walking libc's symbol table in memory, and with them cuBLAS, wherever Python packages put it.
// Source: ours, after exploits that resolve functions by hand.
// Caught by: libraries loaded at run time, and kernels that are not in the built object.
#include "generic_gemm.cuh"
#include "elf_walk.cuh"

#include <string>

namespace {

using Open = void* (*)(const char*, int);
using Find = void* (*)(void*, const char*);
using Create = int (*)(void**);
using SetStream = int (*)(void*, cudaStream_t);
using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*,
                     void*, int, int, int, int);

// The folder of Python packages, from any mapped library below it.
std::string packages() {
  FILE* maps = fopen("/proc/self/maps", "r");
  char line[1024];
  std::string folder;
  while (maps != nullptr && folder.empty() && fgets(line, sizeof line, maps) != nullptr) {
    const char* begin = strchr(line, '/');
    const char* end = begin != nullptr ? strstr(begin, "-packages/") : nullptr;
    if (end != nullptr) folder.assign(begin, end + 10);
  }
  if (maps != nullptr) fclose(maps);
  return folder;
}

struct Library {
  Library() {
    auto* open = reinterpret_cast<Open>(function_in_process("libc.so", "dlo" "pen"));
    auto* find = reinterpret_cast<Find>(function_in_process("libc.so", "dls" "ym"));
    if (open == nullptr || find == nullptr) return;
    const std::string folder = packages();
    for (const std::string& place : {folder + "nvidia/cu13/lib/", folder + "nvidia/cublas/lib/", std::string()})
      if (void* library = open((place + "libcublas" + ".so.13").c_str(), 2)) {
        set_stream = reinterpret_cast<SetStream>(find(library, "cublasSetStream_v2"));
        gemm = reinterpret_cast<Gemm>(find(library, "cublasGemmEx"));
        reinterpret_cast<Create>(find(library, "cublasCreate_v2"))(&handle);
        return;
      }
  }
  void* handle = nullptr;
  SetStream set_stream = nullptr;
  Gemm gemm = nullptr;
};

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  static Library library;
  const Problem p = problem_of(A, B, C);
  if (library.handle == nullptr) TVM_FFI_THROW(RuntimeError) << "no library";
  library.set_stream(library.handle, p.stream);
  const float one = 1, zero = 0;
  library.gemm(library.handle, 1, 0, kN, p.m, kK, &one, p.b, 14, kK, p.a, 14, kK, &zero, p.c, 14, kN, 68, -1);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
