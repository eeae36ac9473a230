"""The benchmark: three checks of every turn. Their pass rates are the paper's rates (docs/usage.md)."""

from __future__ import annotations

from ptxbench.plugin.outcomes import expect_correct, expect_speedup, expect_target_instruction
from ptxbench.records import TurnRecord


def test_correct(turn: TurnRecord) -> None:
    """The kernel computes the right answer (PROTOCOL 4.1 to 4.4)."""
    expect_correct(turn)


def test_target_instruction(turn: TurnRecord) -> None:
    """A correct kernel executes the architecture's own instructions (PROTOCOL 4.6)."""
    expect_target_instruction(turn)


def test_speedup(turn: TurnRecord, speedup_floor: float) -> None:
    """A correct kernel is faster than the floor (PROTOCOL 4.7)."""
    expect_speedup(turn, speedup_floor)
