"""Other processes as the kernel tells of them: who descends from whom, and a hold on one that no number can fool."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

MOST_ROUNDS = 1_000
"""Of a fork bomb, each round ends all that were there at its beginning."""
QUIET_ROUNDS = 2
"""Without a new process. A process may change its parent while the lists of children are read."""


def descendants(pid: int) -> list[int]:
    """Processes that were started by this one or by those, parents first; fewer where they end meanwhile."""
    children_of = _lookup()
    found, left = [], [pid]
    while left:
        children = children_of(left.pop())
        found += children
        left += children
    return found


def children(pid: int) -> list[int]:
    """Processes that were started by this one, or came to it as orphans; those that ended and were not taken leave of
    are among them."""
    return _lookup()(pid)


def _lookup() -> Callable[[int], list[int]]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").exists()
    return _children if listed else _by_parent().__getitem__


def end_all(pid: int) -> None:
    """SIGKILL to all that descend from a process, again while new ones appear. The process itself is spared."""
    ended: set[int] = set()
    quiet = 0
    for _ in range(MOST_ROUNDS):
        new = set(descendants(pid)) - ended
        for each in new:
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        ended |= new
        quiet = 0 if new else quiet + 1
        if quiet == QUIET_ROUNDS:
            return


def _children(pid: int) -> list[int]:
    """Children of every thread (proc(5), ``CONFIG_PROC_CHILDREN``)."""
    found: list[int] = []
    # The process, or one of its threads, may end meanwhile.
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError, ValueError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _by_parent() -> defaultdict[int, list[int]]:
    """Every process of this machine under its parent, for kernels that do not keep lists of children."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[int(path.read_text().rpartition(")")[2].split()[1])].append(int(path.parent.name))
    return found


def ending(code: int) -> str:
    """How a process ended, by its exit code, negative for a signal."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"was ended by signal {-code}"


class Handle:
    """A hold on one process, whoever gets its number later."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where there is none, or the kernel has no such holds."""
        self._descriptor = os.pidfd_open(pid)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def ended(self, timeout_s: float) -> bool:
        """Whether it has ended, and let go of its files and devices, within the time."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1e3))

    def close(self) -> None:
        """Let go."""
        os.close(self._descriptor)


_lingering: list[Handle] = []


def await_end(handle: Handle, timeout_s: float) -> None:
    """Wait for a killed process's end and let go of it; what takes longer is remembered (``lingering``)."""
    if handle.ended(timeout_s):
        handle.close()
    else:
        _lingering.append(handle)


def lingering() -> bool:
    """Whether a killed process, which may still hold the device, has not ended yet."""
    for handle in tuple(_lingering):
        if handle.ended(0.0):
            _lingering.remove(handle)
            handle.close()
    return bool(_lingering)
