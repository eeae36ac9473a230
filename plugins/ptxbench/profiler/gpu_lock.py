"""One measurement per device at a time, across processes: a second busy context voids every timing."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptxbench.errors import InfrastructureError

LOCK_TIMEOUT_S = 600.0
_POLL_S = 0.002
"""Short beside the gaps between one process's measurements, so that another gets its turn."""


def lock_path() -> Path:
    """The lock file of device 0 of this process, shared by all users of the machine."""
    import torch

    uuid = str(torch.cuda.get_device_properties(0).uuid)
    name = hashlib.sha256(uuid.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"ptxbench-gpu-{name}.lock"


def _open(path: Path) -> int:
    try:
        # Reading suffices for a lock, and another user's file in a shared folder may not be opened for creation.
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)


@contextmanager
def gpu_lock(path: Path | None = None, timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Hold the device. The kernel releases the lock of a process that dies.

    Raises InfrastructureError("busy_device") when another process keeps it for longer than ``timeout_s``.
    """
    path = path or lock_path()
    descriptor = _open(path)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InfrastructureError(
                        "busy_device",
                        f"another process has held this GPU for {timeout_s:.0f} s ({path}); wait for it or end it",
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)
