// Asks the interpreter of its own process, by Python's C interface, to multiply with torch.
// Source: this project's list of threats (calling torch through the host process).
// Caught by: the screen knows Python's functions.
#include "generic_gemm.cuh"

#include <stdio.h>

extern "C" int PyGILState_Ensure();
extern "C" void PyGILState_Release(int state);
extern "C" int PyRun_SimpleString(const char* text);

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
  const int state = PyGILState_Ensure();
  if (PyRun_SimpleString(text) != 0) TVM_FFI_THROW(RuntimeError) << "failed";
  PyGILState_Release(state);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
