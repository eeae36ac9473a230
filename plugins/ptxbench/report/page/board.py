"""What all figures of a report start from: every cell of every source, with its turns."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ptxbench.records import PASSING_ENDS
from ptxbench.report.cell import Cell, CellKey
from ptxbench.report.document import RunReport, TurnRow
from ptxbench.report.results import cell_key, results_of
from ptxbench.report.sources import Source
from ptxbench.verdict.metrics import TurnResult

_TRAJECTORY = re.compile(r"-v(\d+)-t\d+\Z")


class Workload(NamedTuple):
    """What curves of different models are compared on."""

    case: str
    arch: str


class Variant(NamedTuple):
    """The turns of one prompt variant in a cell."""

    results: tuple[TurnResult, ...]
    trajectories: int


class Row(NamedTuple):
    """One cell of one source."""

    label: str
    """The model, with its source where there are several."""
    cell: Cell
    results: tuple[TurnResult, ...]
    """Those of turns that were not asked for included, as excluded ones."""
    turns: tuple[TurnRow, ...]
    missing: dict[tuple[str, int], str]
    """Trajectory and number of each planned turn that has no record -> key of ``palette.NOT_TAKEN``."""

    @property
    def workload(self) -> Workload:
        """What the cell is about, whichever model it is of."""
        return Workload(self.cell.case, self.cell.arch)

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The turns by prompt variant, in order, also of one that was planned and has none.

        Of a report that does not say which were planned, N of each is nominal where the plan divides evenly.
        """
        groups: dict[int, list[TurnResult]] = defaultdict(list)
        for result in self.results:
            found = _TRAJECTORY.search(result.trajectory)
            groups[int(found[1]) if found else 0].append(result)
        planned = {plan.variant: plan.trajectories for plan in self.cell.variants}
        if not planned:
            share, rest = divmod(self.cell.trajectories, len(groups) or 1)
            planned = dict.fromkeys(groups, 0 if rest else share)
        return tuple(
            Variant(tuple(groups[number]), max(planned.get(number, 0), _trajectories(groups[number])))
            for number in sorted(planned.keys() | groups.keys())
        )


def _trajectories(results: Iterable[TurnResult]) -> int:
    return len({result.trajectory for result in results})


class Board(NamedTuple):
    """All cells."""

    rows: tuple[Row, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Every model, in order of appearance."""
        return tuple(dict.fromkeys(row.label for row in self.rows))

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Every workload, in order of appearance."""
        return tuple(dict.fromkeys(row.workload for row in self.rows))

    def of_workload(self, workload: Workload) -> tuple[Row, ...]:
        """The cells of one workload."""
        return tuple(row for row in self.rows if row.workload == workload)

    def by_label(self) -> list[tuple[str, tuple[Row, ...]]]:
        """All cells together, where there are several models, then those of each model."""
        single = [(label, tuple(row for row in self.rows if row.label == label)) for label in self.labels]
        return single if len(single) == 1 else [("All models", self.rows), *single]


def label_of(source: Source, model: str, sources: int) -> str:
    """What a model is called on the page."""
    return model if sources == 1 else f"{source.name}: {model}"


def make_board(sources: Sequence[Source]) -> Board:
    """Gather the cells of all sources, in order."""
    rows: list[Row] = []
    for source in sources:
        turns: dict[CellKey, list[TurnRow]] = defaultdict(list)
        for turn in source.report.turns:
            turns[CellKey(turn.key.model, turn.key.case, turn.key.arch)].append(turn)
        for cell in source.report.cells:
            results = tuple(results_of(source.report, cell))
            rows.append(
                Row(
                    label=label_of(source, cell.model, len(sources)),
                    cell=cell,
                    results=results,
                    turns=tuple(turns[cell.key]),
                    missing=_missing(source.report, cell, results),
                )
            )
    return Board(tuple(rows))


def _missing(report: RunReport, cell: Cell, results: Iterable[TurnResult]) -> dict[tuple[str, int], str]:
    rows = [row for row in report.turns if cell_key(row.key) == cell.key]
    known = {(row.key.trajectory_id, row.key.turn) for row in rows}
    # From a turn on: why the trajectory went no further. A stored end says more than the last turn does.
    stops = {row.trajectory: (row.turn + 1, "target_reached") for row in results if row.ended_by_target}
    stops |= {
        end.key.trajectory_id: (end.key.turn, "not_asked" if end.reason in PASSING_ENDS else end.reason)
        for end in report.ends
        if cell_key(end.key) == cell.key
    }
    names = sorted({name for name, _ in known} | set(stops))
    # A trajectory of which nothing is known has no name of its own.
    names += [f"#{number}" for number in range(cell.trajectories - len(names))]
    found = {}
    for name in names:
        stop, why = stops.get(name, (cell.turns_per_trajectory, ""))
        for turn in range(cell.turns_per_trajectory):
            if (name, turn) not in known:
                found[name, turn] = why if turn >= stop else "no_record"
    return found
