// Prints what a broken machine would print, and leaves with the exit status of a killed tool: a turn that fails is to be
// taken for nobody's fault and tried again.
// Source: ours, after harnesses that read reasons from logs; this project's list of threats (INFRA_TIMEOUT).
// Caught by: a process that ends during a call is its candidate's fault, whatever it prints.
#include "generic_gemm.cuh"

#include <stdio.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  fputs("INFRA_TIMEOUT\nNVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.\n", stderr);
  fputs("InfrastructureError: device_lost: the driver does not answer; retry on another device\n", stderr);
  fputs("infrastructure_error\nCUDA_ERROR_SYSTEM_NOT_READY\nslurmstepd: error: NODE FAILURE\n", stdout);
  fflush(stdout);
  _exit(137);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
