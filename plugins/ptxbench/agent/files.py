"""Files that are either whole or absent, whatever happens to the process that writes them."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ptxbench.errors import InfrastructureError

LOCK_POLL_S = 0.2
"""How often a waiting process looks again: it must hear Ctrl-C, which a blocking lock would not."""


def write_whole(path: Path, data: bytes) -> None:
    """Write ``data`` so that ``path`` holds either its old content or all of the new one.

    Raises InfrastructureError("disk_full") with what to do; other refusals of the system have the same kind, since
    either way the record has no place to go.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
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


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut; a file system that cannot is no reason to fail."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


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
