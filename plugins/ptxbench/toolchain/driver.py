"""g++ as a source may drive it: what really ended it, and no lines of files in what it says.

It runs other programs and says only in words how they died.

Words prove nothing: ``#pragma GCC error`` and attributes print whatever lines a source likes, those of the driver
among them. So a shell stands between g++ and each program that it runs (``-wrapper``) and writes the exit status to a
file, where no source can.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

from ptxbench.toolchain.process import StepResult

# Without commas, at which g++ would split it.
_WITNESS = 'report=$1; shift; "$@"; status=$?; echo $status >> "$report"; exit $status'
_SHELL_SIGNAL = 128
"""What a shell adds to the number of the signal that ended a program."""

_NO_LINES = "-fno-diagnostics-show-caret"
"""g++ shows the line that an error is in, and reads it from whatever file ``#line`` names: a source could print any."""

_COMPILES = frozenset({"-E", "-c"})
"""Options of a command that does not link."""

_PROGRAM_DEATH = re.compile(r"^\S+: (?:fatal|internal compiler) error: (.+?) signal terminated program", re.MULTILINE)
# collect2 runs ld and writes after everything that ld wrote: at the very end these words are its own.
_LINKER_DEATH = re.compile(r"^collect2: fatal error: ld terminated with signal (\d+).*\n.*\n?\Z", re.MULTILINE)
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def drives(command: Sequence[str]) -> bool:
    """Whether a command is g++'s."""
    return Path(command[0]).name.endswith("g++")


def watched(command: Sequence[str], report: str) -> tuple[str, ...]:
    """A command of g++ that also writes the exit status of each program it runs to ``report``, in its folder.

    It names places of errors and does not show them.
    """
    return (*command, _NO_LINES, "-wrapper", f"/bin/sh,-c,{_WITNESS},sh,{report}")


def traced(result: StepResult, command: Sequence[str], report: Path) -> StepResult:
    """g++'s result with the return code of the program that made it fail, as far as that is known."""
    if result.ok:
        return result
    statuses = [int(line) for line in report.read_text().split()] if report.exists() else []
    failed = next((status for status in statuses if status != 0), None)
    if failed is None:
        # A shell that was killed with its program writes nothing. The driver's own words count then: a source has
        # no program that failed in its name.
        number = _signal(_PROGRAM_DEATH.search(result.output))
        return result._replace(returncode=-number) if number else result
    if failed > _SHELL_SIGNAL:
        return result._replace(returncode=_SHELL_SIGNAL - failed)
    number = None if _COMPILES & set(command) else _signal(_LINKER_DEATH.search(result.output))
    return result._replace(returncode=-number if number else failed)


def _signal(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    return int(match[1]) if match[1].isdigit() else _SIGNALS.get(match[1])
