"""Whether a report can be written where it is asked for."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


def check_report_path(path: Path) -> None:
    """Find out before the run what would lose its report after it. Raises pytest.UsageError."""
    folder = path.parent
    found = ""
    if path.is_dir():
        found = "it is a folder"
    elif not folder.exists():
        found = f"there is no folder {folder}"
    elif not folder.is_dir():
        found = f"{folder} is not a folder"
    else:
        try:
            # Permissions do not tell: a read-only file system refuses whoever has them.
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            found = f"no file can be made in {folder}: {error.strerror}"
    if found:
        raise pytest.UsageError(
            f"--ptx-json {path}: expected a file that the report can be written to, found: {found}; "
            "choose a path in a folder that you may write to"
        )
