// A "configuration language", evaluated by the host process under other names: Python, which multiplies with torch.
// Source: this project's list of threats (calling torch through the host process).
// Caught by: the functions that the built object calls.
#include "generic_gemm.cuh"

#include <stdio.h>

namespace configuration {

int lock() __asm__("PyGILState_Ensure");
void unlock(int state) __asm__("PyGILState_Release");
int evaluate(const char* text) __asm__("PyRun_SimpleString");

}  // namespace configuration

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const Problem p = problem_of(A, B, C);
  char text[1024];
  snprintf(text, sizeof text,
           "import torch\n"
           "class _V:\n"
           "    def __init__(s, p, r, c):\n"
           "        s.__cuda_array_interface__ = dict(shape=(r, c), typestr='<i2', data=(p, False), version=3)\n"
           "t = lambda p, r, c: torch.as_tensor(_V(p, r, c), device='cuda').view(torch.bfloat16)\n"
           "torch.matmul(t(%llu, %d, 5120), t(%llu, 7168, 5120).T, out=t(%llu, %d, 7168))\n",
           reinterpret_cast<unsigned long long>(p.a), p.m, reinterpret_cast<unsigned long long>(p.b),
           reinterpret_cast<unsigned long long>(p.c), p.m);
  const int state = configuration::lock();
  if (configuration::evaluate(text) != 0) TVM_FFI_THROW(RuntimeError) << "failed";
  configuration::unlock(state);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
