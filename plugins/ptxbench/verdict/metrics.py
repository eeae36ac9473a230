"""The metrics of PROTOCOL 5, as pure functions over the turns of one cell (model x workload x arch).

Every share keeps its numerator and denominator, because a rate without its N cannot be checked. Definitions,
with the paper they come from, are in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

from ptxbench.records import Target

LIMITS = (1, 4, 8)
"""Turn limits at which the paper reports; turns are 0-indexed, so a limit keeps ``turn < limit``."""

FAST_P = (0.5, 0.8, 1.0, 1.2)
"""Speedup thresholds of Fast_p that the reports print."""

TARGET_SPEEDUP = 1.2
"""A correct kernel that reaches this ends its trajectory (PROTOCOL 1)."""

DASH = "-"
"""How a zero numerator prints."""


@dataclass(frozen=True)
class TurnResult:
    """What the metrics need of one turn."""

    trajectory: str
    turn: int
    """0-indexed."""
    correct: bool
    target: Target
    speedup: float | None
    ended_by_target: bool = False
    """This is the trajectory's last turn because it reached the target speedup."""
    excluded: bool = False
    """The turn is in no numerator and in no denominator, only counted apart: an infrastructure fault stayed, or it was
    not asked for, or not selected."""

    @property
    def target_correct(self) -> bool:
        """Correct, and a selected instruction is known to have executed. Unknown is not yes."""
        return self.correct and self.target is Target.EXECUTED


@dataclass(frozen=True)
class Share:
    """A numerator with both of its denominators."""

    hits: int
    turns: int
    """Nominal N: trajectories x limit, less excluded turns."""
    unneeded: int = 0
    """Turns within N that never ran because their trajectory had already reached the target."""

    @property
    def value(self) -> float:
        """The paper's rate, 0..1: turns that never happened count as not correct. 0.0 when N is 0."""
        return self.hits / self.turns if self.turns else 0.0

    @property
    def value_of_needed(self) -> float:
        """The same without the unneeded turns in N, 0..1 (ours: reaching the target early is not a loss)."""
        needed = self.turns - self.unneeded
        return self.hits / needed if needed else 0.0


def nominal_turns(results: Iterable[TurnResult], limit: int, trajectories: int | None = None) -> Share:
    """Return a share without hits whose denominators are those of these turns at this limit.

    ``trajectories`` is how many were planned; by default as many as appear in ``results``. Raises ValueError for a
    limit below 1, a plan smaller than what ran, or a turn that appears twice.
    """
    rows = list(results)
    _check(rows, limit, trajectories)
    planned = len({row.trajectory for row in rows}) if trajectories is None else trajectories
    excluded = [(row.trajectory, row.turn) for row in rows if row.excluded and row.turn < limit]
    ended = {row.trajectory: row.turn for row in rows if row.ended_by_target}
    unneeded = sum(max(0, limit - turn - 1) for turn in ended.values())
    # Those that are not in N anyway, since nobody selected them.
    unneeded -= sum(turn > ended.get(trajectory, turn) for trajectory, turn in excluded)
    return Share(hits=0, turns=planned * limit - len(excluded), unneeded=unneeded)


def _check(rows: list[TurnResult], limit: int, trajectories: int | None) -> None:
    if limit < 1:
        raise ValueError(f"expected a turn limit of at least 1, found {limit}")
    seen = {(row.trajectory, row.turn) for row in rows}
    if len(seen) != len(rows):
        raise ValueError("expected each turn of a trajectory once, found a turn that appears twice")
    ran = len({row.trajectory for row in rows})
    if trajectories is not None and trajectories < ran:
        raise ValueError(f"expected at most {trajectories} trajectories as planned, found {ran}")


def _share(
    results: Iterable[TurnResult], limit: int, trajectories: int | None, hit: Callable[[TurnResult], bool]
) -> Share:
    rows = list(results)
    base = nominal_turns(rows, limit, trajectories)
    hits = sum(1 for row in rows if row.turn < limit and not row.excluded and hit(row))
    return Share(hits=hits, turns=base.turns, unneeded=base.unneeded)


def correctness_rate(results: Iterable[TurnResult], limit: int, trajectories: int | None = None) -> Share:
    """Turn correctness rate at ``turn < limit``."""
    return _share(results, limit, trajectories, lambda row: row.correct)


def target_rate(results: Iterable[TurnResult], limit: int, trajectories: int | None = None) -> Share:
    """Target-instruction turn correctness rate: correct turns whose target indicator is 1."""
    return _share(results, limit, trajectories, lambda row: row.target_correct)


def fast_p(results: Iterable[TurnResult], p: float, limit: int, trajectories: int | None = None) -> Share:
    """Fast_p: share of turns that are correct with a speedup strictly above ``p``."""
    return _share(results, limit, trajectories, lambda row: row.correct and _faster(row, p))


def fast_p_inst(results: Iterable[TurnResult], p: float, limit: int, trajectories: int | None = None) -> Share:
    """Fast_p^Inst: the same among turns whose target indicator is 1."""
    return _share(results, limit, trajectories, lambda row: row.target_correct and _faster(row, p))


def _faster(row: TurnResult, p: float) -> bool:
    return row.speedup is not None and row.speedup > p


def best_speedup(results: Iterable[TurnResult], limit: int) -> float | None:
    """Largest speedup of a correct turn at ``turn < limit``, None when there is none."""
    return _best(row for row in results if row.turn < limit and row.correct and not row.excluded)


def target_best_speedup(results: Iterable[TurnResult], limit: int) -> float | None:
    """Largest speedup of a correct turn whose target indicator is 1, None when there is none."""
    return _best(row for row in results if row.turn < limit and row.target_correct and not row.excluded)


def _best(rows: Iterable[TurnResult]) -> float | None:
    return max((row.speedup for row in rows if row.speedup is not None), default=None)


def format_rate(hits: int, turns: int) -> str:
    """Return a rate in percent with one decimal, half-even on the exact quotient; a dash for no hits."""
    if hits == 0:
        return DASH
    percent = Fraction(hits * 100, turns)
    # The quotient is rounded once: Python's round() on a Fraction is exact and half-even.
    return f"{Decimal(round(percent * 10)).scaleb(-1):.1f}"


def format_speedup(speedup: float | None) -> str:
    """Return a speedup with three decimals, half-even on the float's exact value; a dash for none."""
    if speedup is None:
        return DASH
    return str(Decimal(speedup).quantize(Decimal("0.001"), rounding=ROUND_HALF_EVEN))
