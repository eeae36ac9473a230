import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.faults import crash, limit_note, not_repeated, raise_if_infrastructure
from ptxbench.toolchain.process import StepResult


@pytest.mark.parametrize(
    ("result", "note"),
    [
        (StepResult("ptxas", 255, "ptxas fatal   : Memory allocation failure\n"), "more memory"),
        (StepResult("cicc", -signal.SIGABRT, "what():  std::bad_alloc\n"), "more memory"),
        (StepResult("g++", 1, "cc1plus: out of memory allocating 65536 bytes\n"), "more memory"),
        (StepResult("g++", -signal.SIGXFSZ, ""), "larger than the limit"),
        (StepResult("cicc", 2, "kernel.cu(1): error: x is undefined"), None),
        (StepResult("cicc", -signal.SIGSEGV, ""), None),
    ],
)
def test_limits_are_told_from_errors(result: StepResult, note: str | None):
    found = limit_note(result)
    assert (found is None) == (note is None)
    assert note is None or note in (found or "")
    assert note is None or crash(result) is None


@pytest.mark.parametrize("tool", ["cicc", "ptxas", "cudafe++", "g++"])
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE])
def test_a_crash_is_the_source_s(tool: str, number: signal.Signals, tmp_path: Path):
    result = StepResult(tool, -number, "")
    assert crash(result) == number.name
    raise_if_infrastructure(result, tmp_path)


def test_an_internal_error_is_a_crash_of_gcc_alone():
    assert crash(StepResult("g++", 4, "")) == "internal error"
    assert crash(StepResult("cudafe++", 4, "catastrophic error")) is None
    assert crash(StepResult("g++", 1, "g++: internal compiler error: says the source")) is None
    assert crash(StepResult("g++", 0, "")) is None


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_from_outside_is_the_machinery_s(number: signal.Signals, tmp_path: Path):
    result = StepResult("ptxas", -number, "")
    assert crash(result) is None
    with pytest.raises(InfrastructureError, match=rf"ptxas to accept.*was killed \({number.name}\)") as caught:
        raise_if_infrastructure(result, tmp_path)
    assert caught.value.kind == "compiler_crashed"


@pytest.mark.parametrize("returncode", [126, 127])
def test_a_tool_that_cannot_be_started_is_the_machinery_s(returncode: int, tmp_path: Path):
    with pytest.raises(InfrastructureError, match="cannot be started: sh: cicc") as caught:
        raise_if_infrastructure(StepResult("cicc", returncode, "sh: cicc: not found"), tmp_path)
    assert caught.value.kind == "compiler_missing"


@pytest.mark.parametrize(
    "output",
    [
        "kernel.cu(3): error: expected a ;",
        "kernel.cu:3:2: error: #error No space left on device",
        "g++: internal compiler error: Segmentation fault signal terminated program cc1plus",
        "g++: fatal error: Killed signal terminated program cc1plus",
    ],
)
def test_a_candidate_cannot_talk_itself_out_of_an_error(output: str, tmp_path: Path):
    raise_if_infrastructure(StepResult("g++", 1, output), tmp_path)


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Full:
        f_bavail, f_frsize = 1, 4096

    full: Any = Full()
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    with pytest.raises(InfrastructureError, match="disk is full") as caught:
        raise_if_infrastructure(StepResult("g++", 1, "fatal error: x: No space left on device"), tmp_path)
    assert caught.value.kind == "disk_full"


def test_a_crash_that_does_not_repeat_itself_is_told():
    first = StepResult("ptxas", -signal.SIGSEGV, "")
    error = not_repeated(first, StepResult("ptxas", 0, ""))
    assert error.kind == "compiler_crashed"
    assert "it crashed (SIGSEGV), then succeeded" in str(error)
    assert "then ended with code 2" in str(not_repeated(first, StepResult("ptxas", 2, "")))
