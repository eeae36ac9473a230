"""The value of a metric over the turns of a report: what is known of it, and what unknowns leave open. Pure.

Any threshold and any turn limit can be asked for, so values come from the turns; over a whole cell they are those of
``ptxbench.verdict.metrics``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from ptxbench.records import Outcome, Target, Verdict
from ptxbench.report.cell import Cell, CellKey
from ptxbench.report.document import RunReport, TurnRow
from ptxbench.report.gates.expression import Metric
from ptxbench.report.results import results_of


class Tally(NamedTuple):
    """What a rate counts."""

    hits: int
    turns: int
    """Nominal N."""
    unknown: int
    """Turns that are no hit and might be one."""

    @property
    def low(self) -> Fraction:
        """The rate if every unknown turn is none of its hits; 0 where N is 0."""
        return Fraction(self.hits, self.turns) if self.turns else Fraction(0)

    @property
    def high(self) -> Fraction:
        """The rate if every unknown turn is one of its hits; 1 where N is 0."""
        return Fraction(self.hits + self.unknown, self.turns) if self.turns else Fraction(1)

    def plus(self, other: Tally) -> Tally:
        """The turns of both."""
        return Tally(self.hits + other.hits, self.turns + other.turns, self.unknown + other.unknown)


class Best(NamedTuple):
    """A best speedup."""

    speedup: float | None
    """Largest known one; None where there is none."""
    unknown: int
    """Turns whose speedup counts and is not known, so that the best may be larger."""


class Trajectory(NamedTuple):
    """What one trajectory adds to a metric."""

    hits: int
    turns: int
    best: float | None


@dataclass(frozen=True)
class CellTurns:
    """A cell of a report with its turns."""

    report: RunReport
    cell: Cell
    rows: tuple[TurnRow, ...]

    @property
    def given(self) -> int:
        """Turns that each trajectory was given: the highest limit that can be asked for."""
        return self.cell.turns_per_trajectory

    def tally(self, metric: Metric, limit: int) -> Tally:
        """Count a rate over ``turn < limit``."""
        hits = [is_hit(metric, row.verdict) for row in self._judged(limit)]
        turns = self.cell.trajectories * limit - sum(self._left_out(limit).values())
        return Tally(hits.count(True), turns, hits.count(None))

    def best(self, metric: Metric, limit: int) -> Best:
        """The best speedup over ``turn < limit``."""
        rows = [(is_hit(metric, row.verdict), row.verdict) for row in self._judged(limit)]
        known = [verdict.speedup for hit, verdict in rows if hit and verdict.speedup is not None]
        unknown = sum(hit is not False and (hit is None or speed_unknown(verdict)) for hit, verdict in rows)
        return Best(max(known, default=None), unknown)

    def trajectories(self, metric: Metric, limit: int) -> list[Trajectory]:
        """What each trajectory adds, planned ones that have no turn included."""
        rows: dict[str, list[TurnRow]] = defaultdict(list)
        for row in self._judged(limit):
            rows[row.key.trajectory_id].append(row)
        left_out = self._left_out(limit)
        known = sorted(rows.keys() | left_out.keys())
        found = [_trajectory(metric, rows[name], limit - left_out.get(name, 0)) for name in known]
        return [*found, *[Trajectory(0, limit, None)] * (self.cell.trajectories - len(found))]

    def _judged(self, limit: int) -> Iterable[TurnRow]:
        return (
            row for row in self.rows if row.key.turn < limit and row.verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR
        )

    def _left_out(self, limit: int) -> dict[str, int]:
        """Trajectory -> turns below the limit that are not in N."""
        found: dict[str, int] = defaultdict(int)
        for trajectory, turn in self._excluded:
            found[trajectory] += turn < limit
        return found

    @cached_property
    def _excluded(self) -> list[tuple[str, int]]:
        return [(result.trajectory, result.turn) for result in results_of(self.report, self.cell) if result.excluded]


def cells_of(report: RunReport) -> list[CellTurns]:
    """Every cell of a report with its turns, in the report's order."""
    rows: dict[tuple[str, str, str], list[TurnRow]] = defaultdict(list)
    for row in report.turns:
        rows[row.key.model, row.key.case, row.key.arch].append(row)
    return [CellTurns(report, cell, tuple(rows[cell.key])) for cell in report.cells]


def selected(metric: Metric, cells: Sequence[CellTurns]) -> list[CellTurns]:
    """The cells that a metric's filters let through."""
    return [found for found in cells if lets_through(metric, found.cell.key)]


def lets_through(metric: Metric, key: CellKey) -> bool:
    """Whether a metric's filters let a cell through."""
    return _matches(key.model, metric.model) and _matches(key.case, metric.case) and _matches(key.arch, metric.arch)


def is_hit(metric: Metric, verdict: Verdict) -> bool | None:
    """Whether a judged turn counts; None where that is unknown. For a best speedup: whether its speedup does."""
    answers = [None if verdict.outcome is Outcome.UNKNOWN else verdict.correct]
    if metric.inst or metric.name == "target":
        answers.append(None if verdict.target is Target.UNKNOWN else verdict.target is Target.EXECUTED)
    if metric.threshold is not None:
        answers.append(_faster(verdict, metric.threshold))
    return False if False in answers else None if None in answers else True


def speed_unknown(verdict: Verdict) -> bool:
    """Whether nobody measured the speed; a speedup that is withheld for cause is known not to count."""
    return verdict.speedup is None and (verdict.latency_ms is None or verdict.baseline_ms is None)


def _faster(verdict: Verdict, threshold: Decimal) -> bool | None:
    if verdict.speedup is not None:
        # As floats, so that 0.8 means what it means in a report.
        return verdict.speedup > float(threshold)
    return None if speed_unknown(verdict) else False


def _trajectory(metric: Metric, rows: Sequence[TurnRow], turns: int) -> Trajectory:
    hits = [row.verdict for row in rows if is_hit(metric, row.verdict)]
    speedups = [verdict.speedup for verdict in hits if verdict.speedup is not None]
    return Trajectory(len(hits), turns, max(speedups, default=None))


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
