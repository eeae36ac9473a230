"""The value of a metric over the turns of a report: what is known of it, and what unknowns leave open. Pure.

Any threshold and any turn limit can be asked for, so values come from the turns; over a whole cell they are those of
``ptxbench.verdict.metrics``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from ptxbench.records import Outcome, Verdict
from ptxbench.report.cell import Cell, CellKey
from ptxbench.report.document import RunReport, TurnRow
from ptxbench.report.gates.expression import Metric
from ptxbench.report.hits import is_hit, speed_unknown
from ptxbench.report.results import unasked_of, unselected_of

Over: TypeAlias = Literal["asked", "selected", "all"]
"""What becomes of turns that a report leaves out of N: ``asked`` leaves them out, as the report does. With ``selected``
those that were not asked for are unknown turns within N; with ``all`` also those that a fault excluded or that were not
selected."""


class Tally(NamedTuple):
    """What a rate counts."""

    hits: int
    turns: int
    """Nominal N."""
    unknown: int
    """Turns that are no hit and might be one."""
    unasked: int = 0
    """Of these, turns that were not asked for."""
    unselected: int = 0
    """Turns that are not in N since they were not selected."""

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
        return Tally(*map(sum, zip(self, other, strict=True)))


class Best(NamedTuple):
    """A best speedup."""

    speedup: float | None
    """Largest known one; None where there is none."""
    unknown: int
    """Turns whose speedup counts and is not known, so that the best may be larger."""
    unasked: int = 0
    """Of these, turns that were not asked for."""
    unselected: int = 0
    """Turns that are not among them since they were not selected."""


class Trajectory(NamedTuple):
    """What one trajectory adds to a metric."""

    hits: int
    turns: int
    best: float | None


class _LeftOut(NamedTuple):
    """A turn that a report leaves out of N."""

    trajectory: str
    turn: int
    why: Literal["fault", "unasked", "unselected"]


_WITHIN: dict[Over, tuple[str, ...]] = {
    "asked": (),
    "selected": ("unasked",),
    "all": ("fault", "unasked", "unselected"),
}


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

    def tally(self, metric: Metric, limit: int, over: Over = "asked") -> Tally:
        """Count a rate over ``turn < limit``."""
        hits = [hit_of(metric, row.verdict) for row in self._judged(limit)]
        left_out = self._left_out(limit, over)
        turns = self.cell.trajectories * limit - len(left_out)
        return Tally(
            hits.count(True),
            turns,
            hits.count(None) + len(self._within(limit, over)),
            self._unasked_within(limit, over),
            sum(one.why == "unselected" for one in left_out),
        )

    def best(self, metric: Metric, limit: int, over: Over = "asked") -> Best:
        """The best speedup over ``turn < limit``."""
        rows = [(hit_of(metric, row.verdict), row.verdict) for row in self._judged(limit)]
        known = [verdict.speedup for hit, verdict in rows if hit and verdict.speedup is not None]
        unknown = sum(hit is not False and (hit is None or speed_unknown(verdict)) for hit, verdict in rows)
        return Best(
            max(known, default=None),
            unknown + len(self._within(limit, over)),
            self._unasked_within(limit, over),
            sum(one.why == "unselected" for one in self._left_out(limit, over)),
        )

    def trajectories(self, metric: Metric, limit: int, over: Over = "asked") -> list[Trajectory]:
        """What each trajectory adds, planned ones that have no turn included."""
        rows: dict[str, list[TurnRow]] = defaultdict(list)
        for row in self._judged(limit):
            rows[row.key.trajectory_id].append(row)
        left_out = Counter(one.trajectory for one in self._left_out(limit, over))
        known = sorted(rows.keys() | {one.trajectory for one in self._excluded if one.turn < limit})
        found = [_trajectory(metric, rows[name], limit - left_out[name]) for name in known]
        return [*found, *[Trajectory(0, limit, None)] * (self.cell.trajectories - len(found))]

    def _judged(self, limit: int) -> Iterable[TurnRow]:
        return (
            row for row in self.rows if row.key.turn < limit and row.verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR
        )

    def _left_out(self, limit: int, over: Over) -> list[_LeftOut]:
        """Turns below the limit that are not in N."""
        return [one for one in self._excluded if one.turn < limit and one.why not in _WITHIN[over]]

    def _within(self, limit: int, over: Over) -> list[_LeftOut]:
        """Turns below the limit that the report leaves out and that are unknown turns in N here."""
        return [one for one in self._excluded if one.turn < limit and one.why in _WITHIN[over]]

    def _unasked_within(self, limit: int, over: Over) -> int:
        return sum(one.why == "unasked" for one in self._within(limit, over))

    @cached_property
    def _excluded(self) -> list[_LeftOut]:
        faults = [row.key for row in self.rows if row.verdict.outcome is Outcome.INFRASTRUCTURE_ERROR]
        unasked = unasked_of(self.report, self.cell, self.rows)
        return [
            *(_LeftOut(key.trajectory_id, key.turn, "fault") for key in faults),
            *(_LeftOut(turn.trajectory, turn.turn, "unasked") for turn in unasked),
            *(_LeftOut(turn.trajectory, turn.turn, "unselected") for turn in unselected_of(self.report, self.cell)),
        ]


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


def hit_of(metric: Metric, verdict: Verdict) -> bool | None:
    """Whether a judged turn counts; None where that is unknown. For a best speedup: whether its speedup does."""
    # A float, so that 0.8 means what it means in a report.
    above = None if metric.threshold is None else float(metric.threshold)
    return is_hit(verdict, inst=metric.inst or metric.name == "target", above=above)


def _trajectory(metric: Metric, rows: Sequence[TurnRow], turns: int) -> Trajectory:
    hits = [row.verdict for row in rows if hit_of(metric, row.verdict)]
    speedups = [verdict.speedup for verdict in hits if verdict.speedup is not None]
    return Trajectory(len(hits), turns, max(speedups, default=None))


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
