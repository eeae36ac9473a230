// Light TVM-FFI: see tvm_ffi.h.
#pragma once
#include <tvm/ffi/container/tensor.h>
