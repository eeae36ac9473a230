"""What a session opens when it first needs it: the models' catalogue, the compiler. Imported where they are used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.models.catalog import Catalog
    from ptxbench.toolchain import Toolchain


def read_catalog(user_file: Path | None) -> Catalog:
    """Our models and the user's. Raises InputError that names the page about them."""
    from ptxbench.models.catalog import load_catalog
    from ptxbench.trace.faults import FileError

    try:
        return load_catalog(user_file)
    except FileError as error:
        advice = "correct the file (docs/models.md describes it)."
        raise FileError(error.file, error.line, error.field, error.expected, error.found, advice) from None


def find_toolchain() -> Toolchain:
    """The compiler of this machine. Raises InfrastructureError where there is none."""
    from ptxbench.toolchain import Toolchain

    return Toolchain.discover()


def compile_slots() -> int:
    """Builds at a time: this process's part of the machine's cores."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, (os.cpu_count() or 1) // workers)
