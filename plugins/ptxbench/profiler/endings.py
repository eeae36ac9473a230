"""What was started here must not outlive this process: processes, and folders that only they use."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Protocol

from ptxbench.profiler.processes import children, end_all
from ptxbench.profiler.sandbox import kernel

REMOVE_TIMEOUT_S = 30.0


class Ends(Protocol):
    """Something with processes and folders that must not outlive this process."""

    @property
    def own_pid(self) -> int:
        """The process that this one started."""

    def kill(self) -> None:
        """End its processes without waiting."""

    def remove_folders(self) -> None:
        """Remove what it keeps on disk, whoever still uses it."""


LIVING: set[Ends] = set()
"""Workers, and debuggers of them, that were started here and not closed yet."""
ORPHANS_S = 30.0
"""From SIGKILL to the end of processes whose kernels the driver has to stop."""
ORPHANS_AT_THE_END_S = 2.0
_POLL_S = 0.002
ORDERLY_END_S = 3.0
"""An idle process sees that its channel has closed, and ends its workers itself, well within this."""


_adopting = False


def adopt_orphans() -> None:
    """From now on what a sandbox leaves behind comes to this process, not to the machine's first one.

    Under a tool a candidate may start processes, and one that lets its parent end descends from nobody who knows it.
    """
    global _adopting
    kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
    _adopting = True


def end_orphans(timeout_s: float = ORPHANS_S) -> None:
    """End all that came here by ``adopt_orphans`` and wait for its end, at most so long."""
    deadline = time.monotonic() + timeout_s
    while _adopting and (found := _orphans()):
        for pid in found:
            end_all(pid)
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(_POLL_S)


def _orphans() -> list[int]:
    """Children of another session that this process did not start. Nobody can join its session from outside."""
    own = {os.getpid(), *(each.own_pid for each in LIVING)}
    found = []
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            if pid not in own and os.getsid(pid) != os.getsid(0):
                found.append(pid)
    return found


def end_with(descriptor: int) -> None:
    """End this process and all in ``LIVING`` soon after the other end of a socket closes, whatever goes on meanwhile.

    A process that was killed while it awaited an answer closes its end. Without this the work it had asked for would go
    on for minutes and keep the device locked: under a tool a kernel runs long, and a tool's own child does not die with
    this process.
    """

    def end() -> None:
        living = list(LIVING)
        for each in living:
            each.kill()
        end_orphans(ORPHANS_AT_THE_END_S)
        for each in living:
            each.remove_folders()
        os._exit(1)

    def watch() -> None:
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        poll.poll()
        time.sleep(ORDERLY_END_S)
        # No daemon: the main thread, which sees its worker killed and may end by that, waits until all is removed.
        threading.Thread(target=end, name="ptxbench-end-all", daemon=False).start()

    threading.Thread(target=watch, name="ptxbench-end", daemon=True).start()


def remove_folder(folder: Path) -> None:
    """Remove a folder that its process may have filled with anything, as far as this user may."""
    with contextlib.suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        # Folders nested deeper than the interpreter recurses, or than descriptors reach.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            command = ["rm", "-rf", "--", str(folder)]
            subprocess.run(command, check=False, timeout=REMOVE_TIMEOUT_S, stderr=subprocess.DEVNULL)
