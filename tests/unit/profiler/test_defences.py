"""Switching defences off: by known names only, for one process, and said in what it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.errors import InputError
from ptxbench.profiler import defences
from tests.conftest import ROOT

SWITCHES = [
    *(ROOT / "plugins/ptxbench/profiler").glob("**/*.py"),
    *(ROOT / "plugins/ptxbench/selftest").glob("**/*.py"),
]
"""Where something may be done for a defence's sake."""


def test_all_are_on_until_one_is_switched_off() -> None:
    assert defences.switched_off() == ()
    assert all(defences.active(name) for name in defences.DEFENCES)


def test_an_unknown_name_is_said() -> None:
    with pytest.raises(InputError, match="found poison; there are screen, poisoned_outputs"):
        defences.known(["poison", "families"])
    with pytest.raises(KeyError):
        defences.active("poison")


def test_names_come_once_and_in_order() -> None:
    assert defences.known(["families", "screen", "families"]) == ("screen", "families")


def test_a_process_has_what_its_command_line_says() -> None:
    program = (
        "from ptxbench.profiler import defences as d; d.switch_off(['guard_bands']);"
        "print(d.active('guard_bands'), d.active('families'), d.switched_off())"
    )
    environment = {"PYTHONPATH": str(ROOT / "plugins"), "PATH": "/usr/bin:/bin"}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "False True ('guard_bands',)\n"


def test_the_oracle_and_the_profiler_know_the_option() -> None:
    oracle = Path(ROOT / "plugins/ptxbench/profiler/oracle.py").read_text()
    assert "--without" in oracle
    assert "--call-timeout-s" in oracle
