"""A folder that is written whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ptxbench.errors import InputError


def expect_new(into: Path) -> None:
    """Raises InputError where there is something already."""
    if os.path.lexists(into) and (not into.is_dir() or any(into.iterdir())):
        raise InputError(f"--into {into}: expected a new or empty folder, found something in its place; choose another")


@contextmanager
def new_folder(into: Path) -> Iterator[Path]:
    """A draft to write to, which takes the place of ``into`` at the end. An error leaves nothing behind.

    Raises InputError where ``into`` holds something already, or cannot be written.
    """
    try:
        expect_new(into)
        with _draft(into) as draft:
            yield draft
    except OSError as error:
        raise InputError(
            f"--into {into}: expected a folder that can be written, found: {error.strerror or error}; choose another"
        ) from error


@contextmanager
def _draft(into: Path) -> Iterator[Path]:
    exists = into.is_dir()
    # In a folder that exists, which may be where another disk begins, or where somebody works; else beside it.
    draft = (into if exists else into.parent) / f".{into.name}.{os.getpid()}.draft"
    draft.mkdir(parents=True)
    try:
        yield draft
        if not exists:
            draft.rename(into)
            return
        for path in sorted(draft.iterdir()):
            path.rename(into / path.name)
        draft.rmdir()
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
