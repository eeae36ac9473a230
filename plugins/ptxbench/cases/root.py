"""Finding the checkout that holds the benchmark's data."""

from __future__ import annotations

from pathlib import Path

from ptxbench.errors import InputError


def find_root(start: Path) -> Path:
    """The nearest folder, from ``start`` upwards, that holds ``cases/suites`` and ``knowledge_packs``.

    Raises:
        InputError: there is none.
    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / "cases" / "suites").is_dir() and (folder / "knowledge_packs").is_dir():
            return folder
    raise InputError(
        f"expected a PTXBench checkout (a folder with cases/suites and knowledge_packs) at {start} or above it, "
        "found none; run from inside a checkout."
    )
