// Writes to every socket and pipe that it finds among its descriptors the message by which a worker says that a call went
// well, and launches nothing.
// Source: this project's list of threats (forged messages on inherited descriptors), after harnesses with result pipes.
// Caught by: the channel carries no result, outputs are poisoned and compared elsewhere.
#include "gemm.cuh"

#include <dirent.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

// One message of Python's multiprocessing: length in network order, then the bytes.
void forge(int descriptor) {
  static const char kOk[] = {0, 0, 0, 1, 'o'};
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) send(descriptor, kOk, sizeof kOk, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (S_ISFIFO(status.st_mode) && write(descriptor, kOk, sizeof kOk) < 0) return;
}

void forge_all() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  while (const dirent* entry = readdir(folder))
    if (const int descriptor = atoi(entry->d_name); descriptor > 2) forge(descriptor);
  closedir(folder);
}

}  // namespace

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  forge_all();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
