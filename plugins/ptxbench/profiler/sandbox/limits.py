"""What the process may use: limits that the kernel keeps."""

from __future__ import annotations

import ctypes
import resource
import signal

_PR_SET_PDEATHSIG = 1
_FILE_LIMIT_BYTES = 16 << 20


def restrict(*, file_bytes: int | None = _FILE_LIMIT_BYTES) -> None:
    """Die with the parent, dump no core, write no file above ``file_bytes`` (None: of any size)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
