"""Files that somebody else wrote and may have made into anything."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


class NotPlainError(ValueError):
    """What is there is no regular file, or too large. ``str()`` says in one line what was expected and found."""


def check_plain(status: os.stat_result, limit: int) -> None:
    """Raises NotPlainError unless ``status``, of ``lstat``, is of a regular file of at most ``limit`` bytes."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise NotPlainError(f"expected a regular file, found {kind}")
    if status.st_size > limit:
        raise NotPlainError(f"expected at most {limit} bytes, found {status.st_size}")


def read_plain(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; never waits, follows no link.

    Raises NotPlainError, or OSError where it is missing or cannot be read.
    """
    # Looked at before it is opened, since opening a device may do something, and after: it may be another by then.
    check_plain(path.lstat(), limit)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        check_plain(os.fstat(file.fileno()), limit)
        content = file.read(limit + 1)
    if len(content) > limit:
        raise NotPlainError(f"expected at most {limit} bytes, found more")
    return content
