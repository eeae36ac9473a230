"""Files of a folder that others made: whatever its links say, what is read is in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ptxbench.trace.faults import FileError


def is_below(root: Path, path: Path) -> bool:
    """Whether ``path``, with all links followed, is in the folder ``root``. Links in a circle lead nowhere else."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def expect_own(root: Path, path: Path) -> Path:
    """``path``. Raises FileError where it is a link to outside of ``root``, or a pipe, which reading would wait for."""
    if not is_below(root, path):
        found = f"a link to {os.path.realpath(path)}"
        raise FileError(path, None, "", f"a file in {root}", found, "put the file itself there (`cp -rL`).")
    return expect_regular(path)


def expect_regular(path: Path) -> Path:
    """``path``. Raises FileError where it is a pipe, socket or device."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FileError(path, None, "", "a regular file", "a pipe, socket or device")
    return path


def files_below(root: Path, folder: str, pattern: str) -> Iterator[Path]:
    """The files in a folder of ``root``, at any depth, that match a pattern, sorted. Raises as ``expect_own``."""
    return (expect_own(root, path) for path in sorted((root / folder).rglob(pattern)))
