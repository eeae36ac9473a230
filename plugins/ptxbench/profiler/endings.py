"""What was started here must not outlive this process: processes, and folders that only they use."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Protocol

REMOVE_TIMEOUT_S = 30.0


class Ends(Protocol):
    """Something with processes and folders that must not outlive this process."""

    def kill(self) -> None:
        """End its processes without waiting."""

    def remove_folders(self) -> None:
        """Remove what it keeps on disk, whoever still uses it."""


LIVING: set[Ends] = set()
"""Workers, and debuggers of them, that were started here and not closed yet."""
ORDERLY_END_S = 3.0
"""An idle process sees that its channel has closed, and ends its workers itself, well within this."""


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
