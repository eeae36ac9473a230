"""Whether a report holds what an earlier one had: cell by cell, each metric by itself. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import NamedTuple

from ptxbench.report.calls import count_of
from ptxbench.report.cell import CellKey
from ptxbench.report.document import RunReport
from ptxbench.report.gates.expression import CORE, Metric
from ptxbench.report.gates.judgement import Answer, percent
from ptxbench.report.gates.measure import CellTurns, cells_of
from ptxbench.verdict.metrics import DASH, format_speedup


class Drop(NamedTuple):
    """One metric of one cell, then and now."""

    cell: CellKey
    metric: Metric
    limit: int
    answer: Answer
    before: str
    after: str
    change: float | None
    """Relative; negative where it fell. None where nothing is known now."""
    note: str

    def __str__(self) -> str:
        change = "" if self.change is None else f" ({self.change * 100:+.1f}%)"
        note = f", {self.note}" if self.note else ""
        return (
            f"{self.cell.model} {self.cell.case} {self.cell.arch} {self.metric}.at({self.limit}): "
            f"{self.before} -> {self.after}{change}{note}"
        )


class Held(NamedTuple):
    """What a comparison with an earlier report came to."""

    answer: Answer
    drops: tuple[Drop, ...]
    """Every metric that had a value, the worst first."""
    cells: int
    """Cells that both have."""
    elsewhere: int
    """Cells of the earlier report that this session did not ask for."""
    new: int
    """Cells that the earlier report does not have."""

    @property
    def summary(self) -> str:
        """How many values hold, and what could not be compared."""
        kept = sum(drop.answer is Answer.MET for drop in self.drops)
        parts = [f"{kept} of {count_of(len(self.drops), 'value')} of {count_of(self.cells, 'cell')} kept"]
        if self.elsewhere:
            parts.append(
                f"{count_of(self.elsewhere, 'cell')} of the baseline not in this session, so that nobody knows what "
                f"became of {'it' if self.elsewhere == 1 else 'them'}"
            )
        if self.new:
            parts.append(f"{count_of(self.new, 'cell')} not in the baseline")
        return ", ".join(parts)


def judge_regression(baseline: RunReport, report: RunReport, most: Fraction, absent: Collection[CellKey] = ()) -> Held:
    """Compare a report with an earlier one: each metric of ``CORE`` may fall by the share ``most`` of its old value.

    ``absent`` are cells that this session asked for and has no record of. A value that is unknown now, or could have
    fallen because of unknown turns or of turns that are left out now, is not kept; nor, as a whole, is a baseline of
    which this session did not ask for every cell. What had no value before is not compared.
    """
    before = {found.cell.key: found for found in cells_of(baseline)}
    after = {found.cell.key: found for found in cells_of(report)}
    lost = [key for key in absent if key in before and key not in after]
    common = [key for key in before if key in after]
    drops = [drop for key in common for drop in _drops(before[key], after[key], most)]
    drops += [drop for key in lost for drop in _drops(before[key], None, most)]
    drops.sort(key=lambda drop: (drop.answer, drop.change if drop.change is not None else -1.0))
    answer = min((drop.answer for drop in drops), default=Answer.UNKNOWN)
    compared = len(common) + len(lost)
    elsewhere = len(before) - compared
    if elsewhere:
        answer = min(answer, Answer.UNKNOWN)
    return Held(answer, tuple(drops), compared, elsewhere, len(after) - len(common))


def _drops(before: CellTurns, after: CellTurns | None, most: Fraction) -> Iterator[Drop]:
    limit = before.given if after is None else min(before.given, after.given)
    for metric in CORE:
        drop = (
            _rate(metric, before, after, limit, most) if metric.is_rate else _best(metric, before, after, limit, most)
        )
        if drop is not None:
            yield drop


def _rate(metric: Metric, before: CellTurns, after: CellTurns | None, limit: int, most: Fraction) -> Drop | None:
    old = before.tally(metric, limit)
    if old.turns == 0:
        return Drop(before.cell.key, metric, limit, Answer.UNKNOWN, "?", "?", None, "no turn of the baseline is in N")
    if old.hits == 0:
        return None
    if after is None:
        return _absent(before, metric, limit, percent(old.low))
    new = after.tally(metric, limit, "all")
    floor = old.low * (1 - most)
    answer = Answer.MET if new.turns and new.low >= floor else Answer.FAILED if new.high < floor else Answer.UNKNOWN
    note = f"{count_of(new.unknown, 'unknown turn')}: up to {percent(new.high)}" if new.unknown else ""
    known = bool(new.turns)
    return Drop(
        before.cell.key,
        metric,
        limit,
        answer,
        percent(old.low),
        percent(new.low) if known else "?",
        float(new.low / old.low - 1) if known else None,
        note if known else "no turn is in N",
    )


def _best(metric: Metric, before: CellTurns, after: CellTurns | None, limit: int, most: Fraction) -> Drop | None:
    old = before.best(metric, limit).speedup
    if old is None:
        return None
    if after is None:
        return _absent(before, metric, limit, format_speedup(old))
    new = after.best(metric, limit, "all")
    kept = new.speedup is not None and new.speedup >= old * float(1 - most)
    answer = Answer.MET if kept else Answer.UNKNOWN if new.unknown else Answer.FAILED
    return Drop(
        before.cell.key,
        metric,
        limit,
        answer,
        format_speedup(old),
        format_speedup(new.speedup) if new.speedup is not None else "?" if new.unknown else DASH,
        new.speedup / old - 1 if new.speedup is not None else None if new.unknown else -1.0,
        f"{count_of(new.unknown, 'turn')} of unknown speed" if new.unknown else "",
    )


def _absent(before: CellTurns, metric: Metric, limit: int, value: str) -> Drop:
    return Drop(before.cell.key, metric, limit, Answer.UNKNOWN, value, "?", None, "no turn has a record")
