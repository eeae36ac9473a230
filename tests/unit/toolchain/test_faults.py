import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.faults import limit_note, raise_if_infrastructure
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


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (StepResult("cicc", 127, "sh: cicc: not found"), "compiler_missing"),
        (StepResult("cicc", 126, "sh: cicc: Permission denied"), "compiler_missing"),
        (StepResult("cicc", -signal.SIGSEGV, ""), "compiler_crashed"),
        (StepResult("ptxas", -signal.SIGKILL, ""), "compiler_crashed"),
        (
            StepResult(
                "g++", 4, "g++: internal compiler error: Segmentation fault signal terminated program cc1plus\n"
            ),
            "compiler_crashed",
        ),
        (StepResult("g++", 4, "kernel.cudafe1.cpp:9:1: internal compiler error: in expand_expr\n"), "compiler_crashed"),
        (StepResult("g++", 1, "g++: fatal error: Killed signal terminated program cc1plus\n"), "compiler_crashed"),
    ],
)
def test_faults_of_the_machinery(result: StepResult, kind: str, tmp_path: Path):
    with pytest.raises(InfrastructureError) as caught:
        raise_if_infrastructure(result, tmp_path)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    "output",
    [
        "kernel.cu(3): error: expected a ;",
        "kernel.cu:3:2: error: #error No space left on device",
        "kernel.cu:3:2: error: #error g++: internal compiler error",
        '    3 | #error "g++: internal compiler error"',
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
