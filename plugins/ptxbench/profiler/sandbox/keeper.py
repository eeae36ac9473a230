"""The processes above a candidate's: they hold its namespace, watch its memory, and end as it ended."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import struct
import sys
import time
from typing import NoReturn

from . import kernel
from .limits import PROCESSES

WATCH_S = 0.25
"""Between two looks at the memory: a look takes some 50 us of another processor."""
ORPHANS_S = 10.0
"""For ending what a candidate left behind."""
LEAST_MEMORY_BYTES = 2 << 30
MEMORY_SHARE = 0.5
"""Of what the machine, or this control group, has left when the sandbox starts."""
_STATUS = struct.Struct("i")
_THREADS_FIELD, _PAGES_FIELD = 17, 21
"""num_threads and rss of /proc/PID/stat, counted behind the program's name (proc(5))."""
_PAGE_BYTES = resource.getpagesize()
_GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit() -> int:
    """How many bytes of host memory a candidate may fill before it is ended."""
    with open("/proc/meminfo") as lines:
        sizes = {name: int(rest.split()[0]) << 10 for name, _, rest in (line.partition(":") for line in lines)}
    available = sizes.get("MemAvailable", sizes["MemTotal"])
    for path in _GROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            available = min(available, int(file.read()))
    return max(LEAST_MEMORY_BYTES, int(available * MEMORY_SHARE))


def keep(child: int, most_bytes: int, *, report: int | None, whole_namespace: bool) -> NoReturn:
    """Wait for the candidate's process and end like it. As the first process of a namespace, all in it end too.

    ``report`` is where its status is written, by a process that can not end by a signal itself.
    """
    _let_go_of_all_but(report)
    # Whatever starts processes and ends before them leaves them here, not to the machine's first process.
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while (status := _reap(child)) is None:
        signal.sigtimedwait({signal.SIGCHLD}, WATCH_S)
        used, threads = _usage(child, whole_namespace=whole_namespace)
        if used > most_bytes or threads > PROCESSES:
            found = f"{used >> 20} MiB of host memory and {threads} threads"
            _say(f"ended: it has {found}, {most_bytes >> 20} MiB and {PROCESSES} are allowed")
            os.kill(child, signal.SIGKILL)
    if report is None:
        _end_orphans()
        _end_as(status)
    os.write(report, _STATUS.pack(status))
    os._exit(0)


def _say(text: str) -> None:
    # The candidate may have filled the file.
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())


def relay(child: int, report: int) -> NoReturn:
    """Wait for the first process of a namespace, then end as it says that the candidate's ended."""
    _let_go_of_all_but(report)
    _, status = os.waitpid(child, 0)
    said = os.read(report, _STATUS.size)
    _end_as(_STATUS.unpack(said)[0] if len(said) == _STATUS.size else status)


def _let_go_of_all_but(descriptor: int | None) -> None:
    """The channel ends with the candidate; what it printed goes on through the standard streams."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    kept = 2 if descriptor is None else descriptor
    os.closerange(3, kept)
    os.closerange(kept + 1, max(kept + 1, most))


def _reap(child: int) -> int | None:
    """The child's status once it has ended; orphans that came to this process are taken leave of."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                return None
    except ChildProcessError:
        return signal.SIGKILL


def _end_orphans() -> None:
    """SIGKILL to all that the candidate left behind: with every parent that ends, its children come here."""
    own, deadline = os.getpid(), time.monotonic() + ORPHANS_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            for name in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat") as stat:
                    if int(stat.read().rpartition(")")[2].split()[1]) == own:
                        os.kill(int(name), signal.SIGKILL)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _usage(child: int, *, whole_namespace: bool) -> tuple[int, int]:
    """Bytes of host memory and threads, of the candidate's process or of all but this one in its namespace."""
    own = os.getpid()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()] if whole_namespace else [child]
    used = threads = 0
    for pid in pids:
        if pid != own:
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as stat:
                fields = stat.read().rpartition(")")[2].split()
                threads += int(fields[_THREADS_FIELD])
                used += int(fields[_PAGES_FIELD]) * _PAGE_BYTES
    return used, threads


def _end_as(status: int) -> NoReturn:
    sys.stdout.flush()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, set())
        os.kill(os.getpid(), number)
        os._exit(128 + number)
    os._exit(os.waitstatus_to_exitcode(status))
