"""What the metrics need of a cell's turns: from records, and from a report's rows for numbers that no cell holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple, Protocol

from ptxbench.records import PASSING_ENDS, Outcome, Target, TurnKey, Verdict
from ptxbench.report.cell import Cell, CellKey
from ptxbench.report.document import RunReport
from ptxbench.verdict.metrics import TARGET_SPEEDUP, TurnResult


class JudgedTurn(Protocol):
    """A record or a report's row."""

    @property
    def key(self) -> TurnKey:
        """Which turn."""

    @property
    def verdict(self) -> Verdict:
        """What the judge says of it."""


class EarlyEnd(Protocol):
    """How a trajectory ended before its last turn: a record or a report's row."""

    @property
    def key(self) -> TurnKey:
        """The first turn that did not happen."""

    @property
    def reason(self) -> str:
        """Why."""


class Unasked(NamedTuple):
    """A turn that a spent budget, a stop or a missing device kept from happening."""

    result: TurnResult
    """Excluded."""
    reason: str


def cell_key(key: TurnKey) -> CellKey:
    """Return the cell that a turn is in."""
    return CellKey(key.model, key.case, key.arch)


def turn_results(turns: Iterable[JudgedTurn]) -> list[TurnResult]:
    """Return what the metrics need of the turns of one cell."""
    rows = list(turns)
    last: dict[str, int] = {}
    for row in rows:
        last[row.key.trajectory_id] = max(row.key.turn, last.get(row.key.trajectory_id, 0))
    return [_turn_result(row, is_last=last[row.key.trajectory_id] == row.key.turn) for row in rows]


def unasked_turns(
    turns: Iterable[JudgedTurn], ends: Iterable[EarlyEnd], given: int, unselected: Iterable[TurnKey] = ()
) -> list[Unasked]:
    """Return the turns of a cell that were not asked for, of the ``given`` ones of each trajectory.

    Not those ``unselected``, which are no part of the session.
    """
    known = {(key.trajectory_id, key.turn) for key in (*(row.key for row in turns), *unselected)}
    return [
        Unasked(_left_out(end.key.trajectory_id, turn), end.reason)
        for end in ends
        if end.reason in PASSING_ENDS
        for turn in range(end.key.turn, given)
        if (end.key.trajectory_id, turn) not in known
    ]


def results_of(report: RunReport, cell: Cell) -> list[TurnResult]:
    """Return a cell's turns as ``ptxbench.verdict.metrics`` takes them; give it ``cell.trajectories`` as well.

    Turns that were not asked for, or not selected, are there as excluded ones. The cell's own numbers come out of them
    again.
    """
    rows = [row for row in report.turns if cell_key(row.key) == cell.key]
    return [*turn_results(rows), *unasked_of(report, cell, rows), *unselected_of(report, cell)]


def unasked_of(report: RunReport, cell: Cell, rows: Collection[JudgedTurn]) -> list[TurnResult]:
    """Return the turns of a report's cell, which has the turns ``rows``, that were not asked for."""
    ends = [end for end in report.ends if cell_key(end.key) == cell.key]
    unselected = [key for key in report.unselected if cell_key(key) == cell.key]
    return [turn.result for turn in unasked_turns(rows, ends, cell.turns_per_trajectory, unselected)]


def unselected_of(report: RunReport, cell: Cell) -> list[TurnResult]:
    """Return the turns of a report's cell that were not selected."""
    return unselected_turns(key for key in report.unselected if cell_key(key) == cell.key)


def unselected_turns(keys: Iterable[TurnKey]) -> list[TurnResult]:
    """Return turns of one cell that were not selected, as the metrics leave them out."""
    return [_left_out(key.trajectory_id, key.turn) for key in keys]


def _left_out(trajectory: str, turn: int) -> TurnResult:
    return TurnResult(trajectory, turn, correct=False, target=Target.UNKNOWN, speedup=None, excluded=True)


def _turn_result(row: JudgedTurn, *, is_last: bool) -> TurnResult:
    verdict = row.verdict
    reached = verdict.correct and verdict.speedup is not None and verdict.speedup >= TARGET_SPEEDUP
    return TurnResult(
        trajectory=row.key.trajectory_id,
        turn=row.key.turn,
        correct=verdict.correct,
        target=verdict.target,
        speedup=verdict.speedup if verdict.correct else None,
        ended_by_target=is_last and reached,
        excluded=verdict.outcome is Outcome.INFRASTRUCTURE_ERROR,
    )
