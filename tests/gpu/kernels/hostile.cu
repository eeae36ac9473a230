// Two hundred hostile candidates in one source: a test writes number and deed over the mark in the built object.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__attribute__((used)) static volatile char mark[40] = "HOSTILE-0000/________________";

__global__ void wait_for_ever() {
  for (;;) asm volatile("nanosleep.u32 1000;" ::: "memory");
}

__global__ void write_far_away(int* address) { *address = 1; }

// fork, past a screen that looks for its name and for assembly: mov eax, 56; mov edi, SIGCHLD; xor esi, esi;
// xor edx, edx; xor r10d, r10d; syscall; ret. On another machine nothing.
__attribute__((section(".text#"), used)) static const unsigned char clone_code[] = {
    0xb8, 56, 0, 0, 0, 0xbf, 17, 0, 0, 0, 0x31, 0xf6, 0x31, 0xd2, 0x45, 0x31, 0xd2, 0x0f, 0x05, 0xc3};

static long new_process() {
#ifdef __x86_64__
  return reinterpret_cast<long (*)()>(const_cast<unsigned char*>(clone_code))();
#else
  return -1;
#endif
}

static int number() { return std::atoi(const_cast<const char*>(mark) + 8); }

static void* sleep_for_ever(void*) {
  for (;;) pause();
}

static void huge_print() {
  static char line[1 << 16];
  std::memset(line, '#', sizeof line);
  for (int index = 0; index < 1024; ++index)
    if (write(1, line, sizeof line) < 0) break;
  lseek(1, 0, SEEK_END);
}

static void memory_hog() {
  for (;;) {
    volatile char* block = static_cast<char*>(std::malloc(64 << 20));
    if (block == nullptr) continue;
    for (long at = 0; at < (64 << 20); at += 4096) block[at] = 1;
  }
}

static void device_hog() {
  void* block;
  for (size_t bytes = size_t{1} << 36; bytes >= (size_t{1} << 20); bytes /= 2)
    while (cudaMalloc(&block, bytes) == cudaSuccess) cudaMemset(block, 1, 1);
  cudaGetLastError();
}

static void fork_bomb() {
  for (int index = 0; index < 20000; ++index)
    if (new_process() == 0)
      for (;;) new_process();
}

static void thread_bomb() {
  pthread_t thread;
  for (int index = 0; index < 20000; ++index)
    if (pthread_create(&thread, nullptr, sleep_for_ever, nullptr) != 0) break;
}

static void get_away() {
  for (int index = 0; index < 20; ++index)
    if (new_process() == 0) {
      setsid();
      if (new_process() != 0) _exit(0);
      for (int signal = 1; signal < 32; ++signal) std::signal(signal, SIG_IGN);
      for (;;) pause();
    }
  _exit(3 + number() % 100);
}

static void signal_games() {
  for (int signal = 1; signal < 32; ++signal) std::signal(signal, SIG_IGN);
  kill(0, SIGSTOP);
  kill(-1, SIGKILL);
  kill(getppid(), SIGKILL);
  raise(number() % 2 ? SIGSTOP : SIGKILL);
}

static void forge() {
  char text[256];
  for (int descriptor = 3; descriptor < 64; ++descriptor) {
    // A message of multiprocessing.connection: length, then what once meant that a call went well.
    const char message[] = {0, 0, 0, 1, 'o'};
    if (write(descriptor, message, sizeof message) > 0) {
      std::snprintf(text, sizeof text, R"({"spans":[1],"activities":[1],"stray":0,"launches":[]})");
      if (write(descriptor, text, std::strlen(text)) < 0) break;
    }
  }
}

static bool is(const char* deed) {
  const char* found = const_cast<const char*>(mark) + 13;
  return std::strncmp(found, deed, std::strlen(deed)) == 0;
}

static void run(tvm::ffi::TensorView A, tvm::ffi::TensorView B, tvm::ffi::TensorView C) {
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(A.device().device_type, A.device().device_id));
  std::printf("%s\n", const_cast<const char*>(mark));
  std::fflush(stdout);
  if (is("hang_host")) sleep_for_ever(nullptr);
  if (is("hang_device")) wait_for_ever<<<1, 1, 0, stream>>>();
  if (is("fault_host")) *reinterpret_cast<volatile int*>(8) = 1;
  if (is("fault_device")) write_far_away<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(64));
  if (is("memory_hog")) memory_hog();
  if (is("device_hog")) device_hog();
  if (is("fork_bomb")) fork_bomb();
  if (is("thread_bomb")) thread_bomb();
  if (is("huge_print")) huge_print();
  if (is("early_exit")) _exit(3 + number() % 100);
  if (is("get_away")) get_away();
  if (is("signal_games")) signal_games();
  if (is("aborts")) std::abort();
  if (is("forge")) forge();
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
