// Opens sockets and sends a datagram to this machine's discard port, as telemetry would to its server. C is not computed.
// Source: this project's list of threats.
// Caught by: the network namespace and the filter of system calls; outputs are poisoned.
#include "gemm.cuh"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const int channel = socket(AF_INET, SOCK_DGRAM, 0);
  if (channel < 0) return;
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sendto(channel, "shape", 5, MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  close(channel);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
