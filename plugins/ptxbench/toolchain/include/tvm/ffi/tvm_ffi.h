// A light front of the TVM-FFI C++ API for kernel files: what a destination-passing kernel needs, and no more.
//
// The full headers cost several seconds per compilation, nearly all of it in templates that a kernel never uses.
// This file stands on the plain C ABI of the installed apache-tvm-ffi (`tvm/ffi/c_api.h`), from which all layouts
// and constants come, and behaves like the full headers for the names it defines: same arguments accepted, same
// error kinds and messages. Whatever it does not define fails to compile here, and the toolchain then builds with
// the full headers; so nothing may be defined here that behaves differently there.
#ifndef PTXBENCH_LIGHT_TVM_FFI_H_
#define PTXBENCH_LIGHT_TVM_FFI_H_

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#endif  // PTXBENCH_LIGHT_TVM_FFI_H_
