"""Whose fault a failed step is: the candidate's, or the machinery's.

A fault of the machinery excludes a candidate from the result, so a source must not be able to cause one. What a tool
does on its own, crashing included, it does because of the source.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain import driver
from ptxbench.toolchain.process import StepResult

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127
"""Exit codes of a shell that could not start the program."""

_MIN_FREE_BYTES = 1 << 20

_NO_MEMORY = re.compile(
    r"bad_alloc|virtual memory exhausted|[Oo]ut of memory|Cannot allocate memory|Memory allocation failure"
)
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_GCC_INTERNAL_ERROR = 4
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that no program sends itself: the system without memory, or an operator."""


def limit_note(result: StepResult) -> str | None:
    """What to add to the log when a step failed by a limit that the build set; None when it failed otherwise."""
    if result.returncode == -signal.SIGXFSZ:
        return f"{result.tool} stopped: it wrote a file larger than the limit"
    if result.returncode != 0 and _NO_MEMORY.search(result.output):
        return f"{result.tool} stopped: it needed more memory than the limit"
    return None


def crash(result: StepResult) -> str | None:
    """How a tool crashed, for example ``SIGSEGV``; None when it ended in another way, by a limit or from outside."""
    if limit_note(result) is not None:
        return None
    if result.returncode < 0:
        number = -result.returncode
        return None if number in _FROM_OUTSIDE else _name(number)
    return "internal error" if driver.drives((result.tool,)) and result.returncode == _GCC_INTERNAL_ERROR else None


def raise_if_infrastructure(result: StepResult, folder: Path) -> None:
    """Raises InfrastructureError for a failure that is not the candidate's: ``compiler_missing`` (a tool cannot be
    started), ``disk_full``, ``compiler_crashed`` (killed from outside). Call it only for steps that no limit stopped.
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
    if -result.returncode in _FROM_OUTSIDE:
        raise InfrastructureError(
            "compiler_crashed",
            f"expected {result.tool} to accept or reject the source; it was killed ({_name(-result.returncode)}). "
            "Look whether the machine ran out of memory.",
        )


def not_repeated(first: StepResult, second: StepResult) -> InfrastructureError:
    """The error for a tool that crashed, and with the same input did not crash again."""
    how = "succeeded" if second.ok else f"ended with code {second.returncode}"
    return InfrastructureError(
        "compiler_crashed",
        f"expected {first.tool} to end alike on the same source; it crashed ({crash(first)}), then {how}. "
        "Look for faulty or exhausted memory of the machine.",
    )


def disk_full(folder: Path) -> InfrastructureError:
    """The error for a file system without room for a build."""
    return InfrastructureError(
        "disk_full",
        f"expected room for a build in {folder}; the disk is full. "
        "Free some, or set PTXBENCH_CACHE to a folder on another disk.",
    )


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _has_space(folder: Path) -> bool:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize > _MIN_FREE_BYTES
