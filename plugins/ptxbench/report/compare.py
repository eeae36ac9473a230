"""Reports side by side: each later one against the first, cell by cell, metric by metric. Pure.

A metric *regressed* if it fell by more than a share of its value, and, where both sides have two trajectories or more,
the interval of the difference lies below zero (``docs/compare.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Literal, NamedTuple

from ptxbench.errors import InputError
from ptxbench.records import Record
from ptxbench.report.cell import CellKey
from ptxbench.report.compare_settings import SettingDifference, differing_settings
from ptxbench.report.compare_statistics import best_difference, rate_difference
from ptxbench.report.document import RunReport
from ptxbench.report.gates.expression import CORE, Metric
from ptxbench.report.gates.measure import CellTurns, Over, cells_of
from ptxbench.verdict.metrics import FAST_P

DEFAULT_MAX_REGRESSION = Fraction(5, 100)

METRICS = (
    *CORE,
    *(Metric("fast_p", Decimal(str(p)), inst=inst) for inst in (False, True) for p in FAST_P),
)

Change = Literal["regression", "undecided", "improvement", "none"]
ORDER: tuple[Change, ...] = ("regression", "undecided", "improvement", "none")
"""What is told first."""


class Side(Record):
    """One of the reports."""

    name: str
    turns: int
    models: tuple[str, ...]
    devices: tuple[str, ...]


class Delta(Record):
    """One metric of one cell on both sides."""

    metric: str
    """As a gate writes it."""
    before: float | None
    """Share of turns, or a speedup; None where there is none."""
    after: float | None
    after_at_most: float | None
    """What ``after`` would be if every unknown turn counted; None where a best speedup is not bounded. Turns that the
    later report leaves out of N are unknown turns within N here."""
    unknown_before: int
    unknown_after: int
    difference: float | None
    interval: tuple[float, float] | None
    """95%, of the difference. None with fewer than two trajectories on a side: then the size alone decides."""
    change: Change


class CellDelta(Record):
    """One cell on both sides."""

    before: CellKey
    after: CellKey
    """Another model's where the reports hold one model each, and not the same."""
    limit: int
    """The most turns that both sides gave their trajectories."""
    trajectories_before: int
    trajectories_after: int
    mixed: bool
    """On a side, calls of the cell were not all made in one way."""
    deltas: tuple[Delta, ...]

    @property
    def worst(self) -> int:
        """Rank of the most important change."""
        return min(ORDER.index(delta.change) for delta in self.deltas)


class Against(Record):
    """One report against the first."""

    name: str
    warnings: tuple[SettingDifference, ...]
    cells: tuple[CellDelta, ...]
    """Those with regressions first."""
    only_before: tuple[CellKey, ...]
    only_after: tuple[CellKey, ...]

    def count(self, change: Change) -> int:
        """How many metrics changed so. Of a cell that is gone, nobody knows: it counts as one that is undecided."""
        gone = len(self.only_before) if change == "undecided" else 0
        return gone + sum(delta.change == change for cell in self.cells for delta in cell.deltas)


class Comparison(Record):
    """The whole comparison."""

    schema_version: Literal[1] = 1
    max_regression: float
    """Share of its value by which a metric may fall."""
    sides: tuple[Side, ...]
    against: tuple[Against, ...]

    @property
    def regressed(self) -> bool:
        """Whether anything regressed, or may have: unknown turns, cells that are gone, or no cell to compare at all."""
        return any(not one.cells or one.count("regression") or one.count("undecided") for one in self.against)


class _Known(NamedTuple):
    """A metric of one cell."""

    low: float | None
    high: float | None
    """With every unknown turn as a hit; None where that has no bound."""
    unknown: int


def compare_reports(reports: Mapping[str, RunReport], max_regression: Fraction = DEFAULT_MAX_REGRESSION) -> Comparison:
    """Compare reports, by name, with the first of them. Raises InputError for fewer than two."""
    if len(reports) < 2:
        raise InputError(f"expected two reports or more to compare, found {len(reports)}; name another")
    (_, before), *others = reports.items()
    return Comparison(
        max_regression=float(max_regression),
        sides=tuple(_side(name, report) for name, report in reports.items()),
        against=tuple(_against(before, name, report, max_regression) for name, report in others),
    )


def _side(name: str, report: RunReport) -> Side:
    return Side(
        name=name,
        turns=len(report.turns),
        models=tuple(dict.fromkeys(cell.model for cell in report.cells)),
        devices=tuple(sorted({device for cell in report.cells for device in cell.devices})),
    )


def _against(before: RunReport, name: str, after: RunReport, most: Fraction) -> Against:
    old, new = cells_of(before), cells_of(after)
    pairs = list(_pairs(old, new))
    cells = [_cell(one, other, most) for one, other in pairs]
    paired_old, paired_new = {one.cell.key for one, _ in pairs}, {other.cell.key for _, other in pairs}
    return Against(
        name=name,
        warnings=differing_settings([before, after]),
        cells=tuple(sorted(cells, key=lambda cell: cell.worst)),
        only_before=tuple(found.cell.key for found in old if found.cell.key not in paired_old),
        only_after=tuple(found.cell.key for found in new if found.cell.key not in paired_new),
    )


def _pairs(old: Sequence[CellTurns], new: Sequence[CellTurns]) -> Iterator[tuple[CellTurns, CellTurns]]:
    """The cells of both reports. Two reports of one model each are about their models, whatever these are called."""
    one_each = len({found.cell.model for found in old}) == len({found.cell.model for found in new}) == 1
    keys = {found.cell.key: found for found in new}
    places = {(found.cell.case, found.cell.arch): found for found in new}
    for found in old:
        other = places.get((found.cell.case, found.cell.arch)) if one_each else keys.get(found.cell.key)
        if other is not None:
            yield found, other


def _cell(before: CellTurns, after: CellTurns, most: Fraction) -> CellDelta:
    limit = min(before.given, after.given)
    return CellDelta(
        before=before.cell.key,
        after=after.cell.key,
        limit=limit,
        trajectories_before=before.cell.trajectories,
        trajectories_after=after.cell.trajectories,
        mixed=bool(before.cell.mixed or after.cell.mixed),
        deltas=tuple(_delta(metric, before, after, limit, most) for metric in METRICS),
    )


def _delta(metric: Metric, before: CellTurns, after: CellTurns, limit: int, most: Fraction) -> Delta:
    old, new = _known(metric, before, limit, "asked"), _known(metric, after, limit, "all")
    difference_of = rate_difference if metric.is_rate else best_difference
    interval = difference_of(before.trajectories(metric, limit), after.trajectories(metric, limit, "all"))
    return Delta(
        metric=str(metric),
        before=old.low,
        after=new.low,
        after_at_most=new.high,
        unknown_before=old.unknown,
        unknown_after=new.unknown,
        difference=new.low - old.low if old.low is not None and new.low is not None else None,
        interval=interval,
        # A rate of no turn at all says nothing: whatever came after it may be less.
        change="undecided" if metric.is_rate and old.low is None else _change(old, new, interval, float(most)),
    )


def _known(metric: Metric, cell: CellTurns, limit: int, over: Over) -> _Known:
    if not metric.is_rate:
        best = cell.best(metric, limit, over)
        return _Known(best.speedup, None if best.unknown else best.speedup, best.unknown)
    tally = cell.tally(metric, limit, over)
    if tally.turns == 0:
        return _Known(None, None, 0)
    return _Known(float(tally.low), float(tally.high), tally.unknown)


def _change(old: _Known, new: _Known, interval: tuple[float, float] | None, most: float) -> Change:
    """What became of a metric. A value that is not there counts as 0; one that is not known may be anything above."""
    before, after = old.low or 0.0, new.low or 0.0
    if after < before * (1 - most) and (interval is None or interval[1] < 0):
        may_be_kept = new.unknown and (new.high is None or new.high >= before * (1 - most))
        return "undecided" if may_be_kept else "regression"
    if after > before * (1 + most) and (interval is None or interval[0] > 0):
        may_have_been = old.unknown and (old.high is None or old.high >= after)
        return "none" if may_have_been else "improvement"
    return "none"
