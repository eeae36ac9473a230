"""The seccomp filter: what a candidate may not ask of the kernel. A list of refusals; all else is allowed.

Numbers are those of the kernel's headers: ``asm/unistd_64.h`` of x86-64, ``asm-generic/unistd.h`` of aarch64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

from . import kernel

# linux/audit.h
_ARCHITECTURES = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7}
_X32 = 0x4000_0000
# linux/bpf_common.h, linux/seccomp.h
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF_0000, 0x0005_0000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_SET_MODE_FILTER = 1
_ON_EVERY_THREAD, _NO_SPECULATION_GUARD = 1, 4
_CLONE_THREAD = 0x0001_0000
_AF_UNIX, _AF_NETLINK = 1, 16

REFUSED: dict[str, tuple[int, int | None]] = {
    # other processes
    "ptrace": (101, 117),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "tkill": (200, 130),
    # mounts and namespaces
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    # the kernel itself
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "iopl": (172, None),
    "ioperm": (173, None),
    "personality": (135, 92),
    # the machine
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "vhangup": (153, 58),
}
"""System call -> its number on x86-64 and on aarch64."""
_PROGRAMS = {"execve": (59, 221), "execveat": (322, 281)}
_LEAVING_THE_GROUP = {"setsid": (112, 157), "setpgid": (109, 154)}
_FORKS: dict[str, tuple[int, int | None]] = {"fork": (57, None), "vfork": (58, None)}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SIGNALS = {"kill": (62, 129), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240)}
_MEMORY = {"process_vm_readv": (310, 270), "process_vm_writev": (311, 271)}
"""Of the process itself they are a way to try an address, which tools that unwind a stack use."""
_PRCTL = (157, 167)
_PRCTL_REFUSED = (kernel.PR_SET_PDEATHSIG, kernel.PR_SET_DUMPABLE, kernel.PR_SET_CHILD_SUBREAPER)
_SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _statement(_RETURN, _ERRNO | number)


def _by_argument(number: int, argument: int, values: tuple[int, ...], *, refused: bool) -> Iterator[bytes]:
    """Call ``number`` is refused where the low word of an argument is one of the values, or where it is none."""
    other, match = (_ALLOW, _ERRNO | errno.EPERM) if refused else (_ERRNO | errno.EPERM, _ALLOW)
    yield _statement(_JUMP_EQUAL, number, 0, len(values) + 3)
    yield _statement(_LOAD, _ARGUMENTS + 8 * argument)
    for index, value in enumerate(values):
        yield _statement(_JUMP_EQUAL, value, len(values) - index, 0)
    yield _statement(_RETURN, other)
    yield _statement(_RETURN, match)


def _clone(number: int) -> Iterator[bytes]:
    """A new thread is allowed, a new process is not."""
    yield _statement(_JUMP_EQUAL, number, 0, 4)
    yield _statement(_LOAD, _ARGUMENTS)
    yield _statement(_JUMP_SET, _CLONE_THREAD, 0, 1)
    yield _statement(_RETURN, _ALLOW)
    yield _refuse(errno.EPERM)


def program(machine: str, pid: int, *, tool: bool = False) -> bytes:
    """The filter as instructions of classic BPF. Raises OSError for a machine whose numbers are not known here.

    ``pid`` is the process's own, the only one it may send signals to. ``tool`` allows what a profiler or debugger that
    works within the process may need: processes, programs, sockets and counters.
    """
    if machine not in _ARCHITECTURES:
        raise OSError(f"the system calls of {machine} are not known here")
    column = 0 if machine == "x86_64" else 1
    refused = dict(REFUSED)
    if tool:
        del refused["perf_event_open"]
    else:
        refused |= _PROGRAMS | _LEAVING_THE_GROUP | _FORKS
    parts = [
        _statement(_LOAD, _ARCHITECTURE),
        _statement(_JUMP_EQUAL, _ARCHITECTURES[machine], 1, 0),
        _refuse(errno.EPERM),
        _statement(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        parts += [_statement(_JUMP_AT_LEAST, _X32, 0, 1), _refuse(errno.EPERM)]
    if not tool:
        parts += _clone(_CLONE[column])
        # Its flags lie in memory, where a filter cannot look; without it the C library falls back to clone.
        parts += [_statement(_JUMP_EQUAL, _CLONE3[column], 0, 1), _refuse(errno.ENOSYS)]
        for numbers in _SOCKETS.values():
            parts += _by_argument(numbers[column], 0, (_AF_UNIX, _AF_NETLINK), refused=False)
        for numbers in _SIGNALS.values():
            parts += _by_argument(numbers[column], 0, (pid,), refused=False)
    for numbers in _MEMORY.values():
        parts += _by_argument(numbers[column], 0, (pid,), refused=False)
    parts += _by_argument(_PRCTL[column], 0, _PRCTL_REFUSED, refused=True)
    for each in refused.values():
        number = each[column]
        if number is not None:
            parts += [_statement(_JUMP_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    return b"".join([*parts, _statement(_RETURN, _ALLOW)])


def install(*, tool: bool) -> None:
    """Filter the system calls of every thread of this process from now on. Raises OSError."""
    instructions = program(platform.machine(), os.getpid(), tool=tool)
    loaded = _Program(len(instructions) // 8, instructions)
    flags = _ON_EVERY_THREAD | _NO_SPECULATION_GUARD
    failed = kernel.seccomp(_SET_MODE_FILTER, flags, ctypes.byref(loaded))
    if failed:
        raise OSError(f"seccomp: thread {failed} has a filter of its own")
