"""Writing in a run folder, and the locks between the processes that do."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.files import write_whole

LOCK_POLL_S = 0.2
"""How often a waiting process looks again: it must hear Ctrl-C, which a blocking lock would not."""


def write_record(path: Path, data: bytes) -> None:
    """Write a part of the run folder, whole or not at all.

    Raises InfrastructureError("disk_full") with what to do; other refusals of the system have the same kind, since
    either way the record has no place to go.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise write_failure(path, error) from error


def write_failure(path: Path, error: OSError) -> InfrastructureError:
    """The error for a record that could not be written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    found = "the disk is full" if full else (error.strerror or str(error))
    return InfrastructureError(
        "disk_full",
        f"{path}: expected to write the record, found: {found}. What was stored before is intact; "
        f"{'free some space' if full else 'make the folder writable'} and run again with the same --run",
    )


def open_lock(path: Path) -> int:
    """A descriptor of the lock file ``path``, which no child process inherits. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)


@contextmanager
def locked(descriptor: int, stopped: Callable[[], bool]) -> Iterator[bool]:
    """Hold an exclusive lock between processes, then close its descriptor; the system frees it if the process dies.

    Yields False without the lock if ``stopped`` became true while waiting.
    """
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if stopped():
                    yield False
                    return
                time.sleep(LOCK_POLL_S)
            else:
                yield True
                return
    finally:
        os.close(descriptor)
