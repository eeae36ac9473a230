"""A candidate's shared object on its way from the build cache to the process that runs it."""

from __future__ import annotations

import errno
import hashlib
import shutil
from pathlib import Path

from ptxbench.errors import InfrastructureError


def copy_object(source: Path, target: Path, sha256: str | None) -> None:
    """Copy it. ``sha256`` is that of what was built; None asks nothing of it.

    Raises InfrastructureError: ("disk_full"), ("sandbox_failed"), and ("internal_error") for another object.
    """
    try:
        shutil.copyfile(source, target)
        found = hashlib.sha256(target.read_bytes()).hexdigest()
    except OSError as error:
        kind = "disk_full" if error.errno == errno.ENOSPC else "sandbox_failed"
        raise InfrastructureError(kind, f"a candidate's object could not be copied: {error}") from error
    # What was built is what runs: under a tool a candidate may write where this user may, so to the build cache.
    if sha256 is not None and found != sha256:
        raise InfrastructureError(
            "internal_error",
            f"{source}: expected the object that was built, of hash {sha256[:12]}, found {found[:12]}; "
            "remove the build cache's folder, and find out who wrote there",
        )
