// Tries to get out of the sandbox, once per line of output: "NAME RESULT", where RESULT is "done" or an error's name.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char* name, long result) {
    printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "done");
}

static void* nothing(void*) { return nullptr; }

static long entries(const char* path) {
    DIR* folder = opendir(path);
    if (!folder) return -1;
    long count = 0;
    while (dirent* entry = readdir(folder)) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

static void processes() {
    long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    tell("clone", child);
#ifdef SYS_fork
    child = syscall(SYS_fork);
    if (child == 0) _exit(0);
    tell("fork", child);
#endif
    child = fork();
    if (child == 0) _exit(0);
    tell("libc_fork", child);
    char* arguments[] = {const_cast<char*>("true"), nullptr};
    tell("execve", execv("/bin/true", arguments));
    tell("system", system("true") == 0 ? 0 : -1);
    pthread_t thread;
    int code = pthread_create(&thread, nullptr, nothing, nullptr);
    if (code == 0) pthread_join(thread, nullptr);
    errno = code;
    tell("thread", code ? -1 : 0);
    tell("setsid", setsid());
    tell("setpgid", setpgid(0, 0));
    tell("kill_init", kill(1, 0));
    tell("kill_parent", kill(getppid(), SIGKILL));
    tell("kill_all", kill(-1, 0));
    tell("kill_group", kill(0, 0));
    tell("kill_self", kill(getpid(), 0));
    tell("tkill", syscall(SYS_tkill, 1, 0));
    tell("ptrace", ptrace(PTRACE_ATTACH, getppid(), 0, 0));
    char byte;
    iovec ours = {&byte, 1}, theirs = {reinterpret_cast<void*>(0x1000), 1};
    tell("process_vm_readv", process_vm_readv(getppid(), &ours, 1, &theirs, 1, 0));
    tell("pidfd_open", syscall(SYS_pidfd_open, getppid(), 0));
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", getppid());
    tell("parent_memory", open(path, O_RDWR));
    snprintf(path, sizeof path, "/proc/%d/environ", getppid());
    int file = open(path, O_RDONLY);
    tell("parent_environment", file < 0 ? -1 : read(file, &byte, 1));
}

static void kernel() {
    tell("unshare_user", unshare(CLONE_NEWUSER));
    tell("unshare_mount", unshare(CLONE_NEWNS));
    tell("mount", mount("none", "/tmp", "tmpfs", 0, nullptr));
    tell("umount", umount("/tmp"));
    tell("chroot", chroot("/tmp"));
    tell("bpf", syscall(SYS_bpf, 0, nullptr, 0));
    tell("perf_event_open", syscall(SYS_perf_event_open, nullptr, 0, -1, -1, 0));
    tell("keyctl", syscall(SYS_keyctl, 0, -1, 0, 0, 0));
    tell("init_module", syscall(SYS_init_module, nullptr, 0, ""));
    tell("io_uring_setup", syscall(SYS_io_uring_setup, 1, nullptr));
    tell("userfaultfd", syscall(SYS_userfaultfd, 0));
    tell("personality", syscall(SYS_personality, 0x0400000));
    tell("clock_settime", syscall(SYS_clock_settime, 0, nullptr));
    tell("keep_living", prctl(PR_SET_PDEATHSIG, 0));
    tell("dumpable", prctl(PR_SET_DUMPABLE, 1));
    tell("subreaper", prctl(PR_SET_CHILD_SUBREAPER, 1));
    errno = 0;
    tell("setuid", setuid(0));
    rlimit most = {1 << 20, 1 << 20};
    tell("raise_limit", setrlimit(RLIMIT_NOFILE, &most));
#ifdef __x86_64__
    tell("x32", syscall(0x40000000 | SYS_getpid));
    long result;
    asm volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    errno = result < 0 ? -result : 0;
    tell("i386", result < 0 ? -1 : 0);
#endif
}

static void network() {
    tell("inet", socket(AF_INET, SOCK_STREAM, 0));
    tell("inet6", socket(AF_INET6, SOCK_DGRAM, 0));
    tell("packet", socket(AF_PACKET, SOCK_RAW, 0));
    tell("unix", socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address = {AF_UNIX, "\0ptxbench-test-abstract"};
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    tell("abstract", connect(end, reinterpret_cast<sockaddr*>(&address), sizeof(sa_family_t) + 23));
    tell("shared_memory", shmget(0x70747862, 1, 0));
}

static void files() {
    const char* written[] = {"/etc/ptxbench", "/usr/ptxbench", "/proc/sys/kernel/core_pattern", "/dev/ptxbench"};
    for (const char* path : written) {
        char name[64];
        snprintf(name, sizeof name, "write_%s", path);
        tell(name, open(path, O_WRONLY | O_CREAT, 0600));
    }
    tell("write_here", open("scratch", O_WRONLY | O_CREAT, 0600));
    tell("write_object", open(getenv("OBJECT") ? getenv("OBJECT") : "../object/escapes.so", O_WRONLY));
    tell("write_folder", open("../ptxbench", O_WRONLY | O_CREAT, 0600));
    tell("memory_device", open("/dev/mem", O_RDONLY));
    tell("kernel_log", open("/dev/kmsg", O_RDONLY));
    const char* folders[] = {"/tmp", "/var/tmp", "/dev/shm", "/home", "/root", ".", "/proc/self/fd"};
    for (const char* path : folders) printf("entries_%s %ld\n", path, entries(path));
    int file = open("large", O_WRONLY | O_CREAT, 0600);
    static char block[1 << 20];
    long size = 0;
    while (size < 32 && write(file, block, sizeof block) == sizeof block) ++size;
    printf("file_mib %ld\n", size);
    long total = size;
    for (int index = 0; index < 16; ++index) {
        snprintf(block, 64, "large%d", index);
        file = open(block, O_WRONLY | O_CREAT, 0600);
        for (size = 0; size < 15 && write(file, block, sizeof block) == sizeof block; ++size) ++total;
        close(file);
    }
    printf("disk_mib %ld\n", total);
}

extern "C" int run() {
    signal(SIGXFSZ, SIG_IGN);
    printf("uid %d\npid %d\n", getuid(), getpid());
    processes();
    kernel();
    network();
    files();
    fflush(stdout);
    return 0;
}
