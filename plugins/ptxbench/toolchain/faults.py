"""Whose fault a failed step is: the candidate's, or the machinery's."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.process import StepResult

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
"""Exit codes of a shell that could not start the program."""

_MIN_FREE_BYTES = 1 << 20

_NO_MEMORY = re.compile(
    r"bad_alloc|virtual memory exhausted|[Oo]ut of memory|Cannot allocate memory|Memory allocation failure"
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
# gcc's driver outlives the compiler proper. It reports an internal error by its exit code, and a death in words on a
# line of its own; lines about the source start with the source's name, so that no source can print such a line.
_GCC_INTERNAL_ERROR = 4
_CHILD_KILLED = re.compile(r"^[\w+-]*g\+\+: fatal error: \w+ signal terminated program", re.MULTILINE)


def limit_note(result: StepResult) -> str | None:
    """What to add to the log when a step failed by a limit that the build set; None when it failed otherwise."""
    if result.returncode == -signal.SIGXFSZ:
        return f"{result.tool} stopped: it wrote a file larger than the limit"
    if result.returncode != 0 and _NO_MEMORY.search(result.output):
        return f"{result.tool} stopped: it needed more memory than the limit"
    return None


def raise_if_infrastructure(result: StepResult, folder: Path) -> None:
    """Raises InfrastructureError for a failure that is not the candidate's: ``compiler_missing`` (a tool of the
    toolkit cannot be started), ``disk_full``, ``compiler_crashed``. Call it only for steps that no limit stopped.
    """
    if result.returncode in (_NOT_EXECUTABLE, _NOT_FOUND):
        raise InfrastructureError(
            "compiler_missing",
            f"expected {result.tool} in the CUDA toolkit; it cannot be started: {result.output.strip()[:300]}. "
            "Reinstall the toolkit.",
        )
    # The words alone prove nothing: a candidate can print them.
    if _NO_SPACE.search(result.output) and not _has_space(folder):
        raise disk_full(folder)
    if result.returncode < 0 or _host_compiler_died(result):
        how = f"signal {-result.returncode}" if result.returncode < 0 else f"exit code {result.returncode}"
        raise InfrastructureError(
            "compiler_crashed",
            f"expected {result.tool} to accept or reject the source; it crashed ({how}): {result.output.strip()[:300]}",
        )


def disk_full(folder: Path) -> InfrastructureError:
    """The error for a file system without room for a build."""
    return InfrastructureError(
        "disk_full",
        f"expected room for a build in {folder}; the disk is full. "
        "Free some, or set PTXBENCH_CACHE to a folder on another disk.",
    )


def _host_compiler_died(result: StepResult) -> bool:
    if not result.tool.endswith("g++"):
        return False
    return result.returncode == _GCC_INTERNAL_ERROR or _CHILD_KILLED.search(result.output) is not None


def _has_space(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize > _MIN_FREE_BYTES
