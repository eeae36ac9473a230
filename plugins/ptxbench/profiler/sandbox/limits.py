"""What the process may use, and whose it is: limits, identity, privileges."""

from __future__ import annotations

import os
import resource
import signal
import stat
import sys

from . import kernel

FILE_BYTES = 16 << 20
OPEN_FILES = 1024
PROCESSES = 512
"""Processes and threads of one sandbox together. A CUDA context has some ten threads."""
_FIRST_UID = 2_000_000_000
"""No distribution gives out numbers up here; the process id on top keeps sandboxes apart."""
_FIRST_DYNAMIC_UID, _DYNAMIC_UIDS = 61_184, 4_336
"""systemd's range for users that exist as long as a service, for user namespaces that end at 65,535."""


def die_with_parent() -> None:
    """SIGKILL once the parent has ended, whatever ended it."""
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def restrict(*, file_bytes: int | None = FILE_BYTES) -> None:
    """Die with the parent, dump no core, write no file above ``file_bytes`` (None: of any size)."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def limit_resources() -> None:
    """Bound what one process may hold. Memory is watched by its keeper: CUDA reserves addresses by the terabyte."""
    restrict()
    _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
    _lower(resource.RLIMIT_MSGQUEUE, 0)
    _lower(resource.RLIMIT_RTPRIO, 0)
    # Where memory runs out, the candidate goes first.
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def limit_processes() -> None:
    """Bound processes and threads. They are counted by user, so this needs one of its own. Raises OSError."""
    if os.getuid() == 0:
        raise OSError("the kernel does not count root's processes")
    _lower(resource.RLIMIT_NPROC, PROCESSES)


def _lower(which: int, value: int) -> None:
    _, most = resource.getrlimit(which)
    value = value if most == resource.RLIM_INFINITY else min(value, most)
    resource.setrlimit(which, (value, value))


def free_uid(number: int) -> int:
    """A user id that nobody has, by a number of this sandbox. Raises OSError where this namespace has none."""
    for uid in (_FIRST_UID + number, _FIRST_DYNAMIC_UID + number % _DYNAMIC_UIDS):
        if _is_mapped(uid, "/proc/self/uid_map") and _is_mapped(uid, "/proc/self/gid_map"):
            return uid
    raise OSError("this user namespace has no user id to give away")


def _is_mapped(number: int, path: str) -> bool:
    with open(path) as lines:
        ranges = [tuple(map(int, line.split())) for line in lines]
    return any(first <= number < first + count for first, _, count in ranges)


def expect_usable_by_others() -> None:
    """Raises OSError where another user could not run this program."""
    for path in {sys.executable, os.path.realpath(sys.executable), os.__file__, __file__}:
        _expect_readable(path)


def become(uid: int) -> None:
    """Become a user without any group or privilege, for good. Raises OSError."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _expect_readable(path: str) -> None:
    mode = os.stat(path).st_mode
    folder = os.path.dirname(path)
    while mode & stat.S_IROTH and os.stat(folder).st_mode & stat.S_IXOTH:
        if folder == "/":
            return
        folder = os.path.dirname(folder)
    raise OSError("other users may not read this interpreter and its libraries")
