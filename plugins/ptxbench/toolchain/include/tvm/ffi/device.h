// Light TVM-FFI: see tvm_ffi.h.
#pragma once
#include <tvm/ffi/c_api.h>
