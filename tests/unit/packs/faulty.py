"""Checks that fail in each way a check on a device can. ``test_programs.py`` runs them on a program for the host."""

from __future__ import annotations

import os
import signal

from ptx_tests.packs.program import Program

_context = {"usable": True}


def agrees(program: Program) -> None:
    """Passes in a process that no fault has spoilt."""
    assert _context["usable"], "started in a process with a fault"


def disagrees(program: Program) -> None:
    raise AssertionError("another result")


def faults(program: Program) -> None:
    """As an error of CUDA: told, and nothing works afterwards."""
    _context["usable"] = False
    raise RuntimeError("tensor copy: an illegal instruction was encountered")


def ends(program: Program) -> None:
    os._exit(0)


def ends_as_after_a_fault(program: Program) -> None:
    os._exit(3)


def is_killed(program: Program) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


CHECKS = {
    "agrees": agrees,
    "disagrees": disagrees,
    "faults": faults,
    "agrees_too": agrees,
    "ends": ends,
    "is_killed": is_killed,
    "ends_as_after_a_fault": ends_as_after_a_fault,
    "agrees_at_last": agrees,
}
