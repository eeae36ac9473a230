"""Calls of the Linux kernel that the standard library does not have, by ctypes."""

from __future__ import annotations

import ctypes
import os
import platform

# sched.h
CLONE_NEWNS = 0x0002_0000
CLONE_NEWCGROUP = 0x0200_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000
# linux/mount.h
MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_SETATTR = 442  # the same on every architecture
# linux/prctl.h, linux/capability.h
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x2008_0522
CAP_SYS_PTRACE = 19
CAP_SYS_ADMIN = 21
_CAPABILITIES = 64
"""More than any kernel has; those it has not are refused."""
# asm/unistd.h
_SECCOMP = {"x86_64": 317, "aarch64": 277}

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """A function of libc that says -1 and ``errno`` where it fails. Raises OSError, with its name."""
    result = getattr(_libc, name)(*arguments)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(result)


def prctl(option: int, value: int = 0) -> None:
    """Set a property of this process. Raises OSError."""
    call("prctl", option, *(ctypes.c_ulong(each) for each in (value, 0, 0, 0)))


def unshare(flag: int) -> None:
    """Leave a namespace for a new one. Raises OSError."""
    call("unshare", ctypes.c_int(flag))


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """mount(2). Raises OSError."""
    call(
        "mount",
        source.encode(),
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )


def set_read_only(path: str, *, read_only: bool = True, recursive: bool = False) -> None:
    """mount_setattr(2): forbid, or allow again, writing to a mount, and with ``recursive`` those under it."""
    attribute = _MOUNT_ATTR_RDONLY | (_MOUNT_ATTR_NOSUID if recursive else 0)
    given = (attribute, 0) if read_only else (0, _MOUNT_ATTR_RDONLY)
    attributes = (ctypes.c_uint64 * 4)(*given, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    arguments = (_MOUNT_SETATTR, _AT_FDCWD, path.encode(), flags, ctypes.byref(attributes))
    call("syscall", *arguments, ctypes.c_size_t(ctypes.sizeof(attributes)))


def holds_capability(capability: int) -> bool:
    """Whether this process has a capability in its user namespace."""
    with open("/proc/self/status") as status:
        effective = next((line.split()[1] for line in status if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> capability & 1)


def drop_capabilities() -> None:
    """Give up every capability, for this process and all that it may start. Raises OSError."""
    try:
        for capability in range(_CAPABILITIES):
            prctl(PR_CAPBSET_DROP, capability)
    except OSError:
        pass  # beyond the last one, or not ours to drop: what is not held here cannot be used from the bounding set
    prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def seccomp(operation: int, flags: int, argument: object) -> int:
    """seccomp(2). Raises OSError, also for an architecture whose number of it is not known here."""
    if platform.machine() not in _SECCOMP:
        raise OSError(f"the system calls of {platform.machine()} are not known here")
    return call("syscall", _SECCOMP[platform.machine()], ctypes.c_uint(operation), ctypes.c_uint(flags), argument)
