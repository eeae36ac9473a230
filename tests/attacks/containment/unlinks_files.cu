// "Clears its cache": removes the files of the temporary folder that it was given, what the harness keeps there included.
// It touches no other folder. C is not computed.
// Source: this project's list of threats.
// Caught by: the folder is the sandbox's own; outputs are poisoned.
#include "gemm.cuh"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  do_nothing(problem_of(A, B, C));
  const char* folder = getenv("TMPDIR");
  if (folder == nullptr || strcmp(folder, "/tmp") == 0 || strlen(folder) < 6) return;
  DIR* directory = opendir(folder);
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) unlink((std::string(folder) + "/" + entry->d_name).c_str());
  closedir(directory);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
