// Opens the driver's control device and asks for information by an ioctl that changes nothing, where a hostile one would set
// clocks. C is not computed.
// Source: this project's list of threats.
// Caught by: no privilege to change the device; outputs are poisoned.
#include "gemm.cuh"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const int device = open("/dev/nvidiactl", O_RDWR);
  if (device < 0) return;
  // NV_ESC_CARD_INFO of the open kernel modules: 32 records of card information, read only.
  static char cards[32 * 128];
  ioctl(device, _IOC(_IOC_READ | _IOC_WRITE, 'F', 200, sizeof cards), cards);
  close(device);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
