"""Whether gates hold on a report: met, failed, or unknown, which is not met. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from fractions import Fraction
from functools import reduce
from typing import NamedTuple

from ptxbench.report.calls import count_of
from ptxbench.report.cell import CellKey
from ptxbench.report.document import RunReport
from ptxbench.report.gates.expression import AllOf, Comparison, Gate, Metric, Operator
from ptxbench.report.gates.measure import Best, CellTurns, Tally, cells_of, lets_through, selected
from ptxbench.verdict.metrics import DASH, format_speedup


class Answer(IntEnum):
    """Of a gate or a comparison, in order of what is worse: ``and`` is the least of its terms, ``or`` the largest."""

    FAILED = 0
    UNKNOWN = 1
    """Unknowns decide it, or there is nothing to judge. Never taken for met."""
    MET = 2


class Finding(NamedTuple):
    """What one comparison came to."""

    comparison: Comparison
    answer: Answer
    value: str
    """What the metric is, in words."""
    margin: float | None
    """How far the value is on the good side of the bound, in units of the metric; negative on the other side."""
    note: str = ""

    @property
    def margin_text(self) -> str:
        """The margin with its unit: percentage points of a rate, else of a speedup."""
        if self.margin is None:
            return ""
        metric = self.comparison.metric
        return f"{self.margin * 100:+.1f} points" if metric.is_rate else f"{self.margin:+.3f}"


class Judged(NamedTuple):
    """What a gate came to."""

    gate: Gate
    answer: Answer
    findings: tuple[Finding, ...]
    """Of its comparisons, from left to right."""


def judge_gate(gate: Gate, report: RunReport, absent: Collection[CellKey] = ()) -> Judged:
    """Judge a gate on a report. Of the cells ``absent``, which were asked for and have no record, nothing is known."""
    cells = cells_of(report)
    findings: list[Finding] = []
    return Judged(gate, _answer(gate, cells, absent, findings), tuple(findings))


def _answer(gate: Gate, cells: Sequence[CellTurns], absent: Collection[CellKey], findings: list[Finding]) -> Answer:
    if isinstance(gate, Comparison):
        findings.append(_lacking(_finding(gate, cells), absent))
        return findings[-1].answer
    answers = [_answer(term, cells, absent, findings) for term in gate.terms]
    return min(answers) if isinstance(gate, AllOf) else max(answers)


def _lacking(finding: Finding, absent: Collection[CellKey]) -> Finding:
    """The finding where cells that the comparison is about have no record: no longer met."""
    lacking = [key for key in absent if lets_through(finding.comparison.metric, key)]
    if not lacking:
        return finding
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    note = _joined(finding.note, f"no turn of {' '.join(lacking[0])}{more} has a record")
    return finding._replace(answer=min(finding.answer, Answer.UNKNOWN), note=note)


def _finding(comparison: Comparison, cells: Sequence[CellTurns]) -> Finding:
    metric = comparison.metric
    chosen = selected(metric, cells)
    if not chosen:
        known = ", ".join(f"{found.cell.model} {found.cell.case} {found.cell.arch}" for found in cells[:3])
        known += f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        note = f"no cell matches; there is {known}" if cells else "no turn has a record"
        return Finding(comparison, Answer.UNKNOWN, "?", None, note)
    short = [found for found in chosen if metric.turns is not None and metric.turns > found.given]
    if short:
        note = f"trajectories of {name_of(short[0])} were given {count_of(short[0].given, 'turn')}"
        return Finding(comparison, Answer.UNKNOWN, "?", None, note)
    if not metric.each:
        return _compare(comparison, chosen, "")
    found = [_compare(comparison, [cell], name_of(cell)) for cell in chosen]
    worst = min(found, key=lambda one: (one.answer, one.margin if one.margin is not None else float("-inf")))
    return worst._replace(note=_joined(worst.note, f"worst of {count_of(len(found), 'cell')}"))


def name_of(cell: CellTurns) -> str:
    """A cell in words."""
    return f"{cell.cell.model} {cell.cell.case} {cell.cell.arch}"


def _compare(comparison: Comparison, cells: Sequence[CellTurns], where: str) -> Finding:
    metric = comparison.metric
    if metric.is_rate:
        return _compare_rate(comparison, _tally(metric, cells), where)
    bests = [cell.best(metric, metric.turns or cell.given, "selected") for cell in cells]
    known = [best.speedup for best in bests if best.speedup is not None]
    best = Best(
        max(known, default=None),
        sum(best.unknown for best in bests),
        sum(best.unasked for best in bests),
        sum(best.unselected for best in bests),
    )
    return _compare_best(comparison, best, where)


def _tally(metric: Metric, cells: Sequence[CellTurns]) -> Tally:
    return reduce(Tally.plus, [cell.tally(metric, metric.turns or cell.given, "selected") for cell in cells])


def _compare_rate(comparison: Comparison, tally: Tally, where: str) -> Finding:
    unselected = _unselected(tally)
    if tally.turns == 0:
        return Finding(comparison, Answer.UNKNOWN, "?", None, _joined(where, "no turn is in N", unselected))
    bound = Fraction(comparison.bound.value)
    answer = _within(comparison.operator, tally.low, tally.high, bound)
    counted = f"{count_of(tally.unknown, 'unknown turn')}{_unasked(tally)}"
    unknown = f"{counted}: up to {percent(tally.high)}" if tally.unknown else ""
    end = tally.low if comparison.operator in (">=", ">") else tally.high
    value = f"{percent(tally.low)} ({tally.hits} of {tally.turns})"
    margin = _margin(comparison.operator, float(end - bound))
    return Finding(comparison, answer, value, margin, _joined(where, unknown, unselected))


def _compare_best(comparison: Comparison, best: Best, where: str) -> Finding:
    # Both as floats: 0.925 means the float that a report prints as 0.925.
    bound = float(comparison.bound.value)
    unknown = f"{count_of(best.unknown, 'turn')} of unknown speed{_unasked(best)}" if best.unknown else ""
    if best.speedup is None:
        failed = not best.unknown and comparison.operator in (">=", ">", "==")
        answer = Answer.FAILED if failed else Answer.UNKNOWN
        return Finding(
            comparison, answer, DASH, None, _joined(where, unknown or "no turn has a speedup", _unselected(best))
        )
    high = float("inf") if best.unknown else best.speedup
    answer = _within(comparison.operator, best.speedup, high, bound)
    margin = _margin(comparison.operator, best.speedup - bound)
    note = _joined(where, unknown, _unselected(best))
    return Finding(comparison, answer, format_speedup(best.speedup), margin, note)


def _unasked(found: Tally | Best) -> str:
    return f", {found.unasked} of them not asked for" if found.unasked else ""


def _unselected(found: Tally | Best) -> str:
    were = "was" if found.unselected == 1 else "were"
    return f"{count_of(found.unselected, 'turn')} {were} not selected" if found.unselected else ""


def _within(operator: Operator, low: Fraction | float, high: Fraction | float, bound: Fraction | float) -> Answer:
    """Whether a value between ``low`` and ``high`` compares so with the bound."""
    at_low, at_high = _holds(operator, low, bound), _holds(operator, high, bound)
    if operator in ("==", "!=") and low < bound < high:
        return Answer.UNKNOWN
    if at_low != at_high:
        return Answer.UNKNOWN
    return Answer.MET if at_low else Answer.FAILED


def _holds(operator: Operator, value: Fraction | float, bound: Fraction | float) -> bool:
    return {
        ">=": value >= bound,
        ">": value > bound,
        "<=": value <= bound,
        "<": value < bound,
        "==": value == bound,
        "!=": value != bound,
    }[operator]


def _margin(operator: Operator, above: float) -> float:
    """From how far a value is above the bound."""
    margins = {">=": above, ">": above, "<=": -above, "<": -above, "==": -abs(above), "!=": abs(above)}
    return margins[operator] + 0.0  # no negative zero


def percent(share: Fraction) -> str:
    """A share as a percentage with one decimal, half-even on the exact value."""
    tenths = round(share * 1000)
    return f"{tenths // 10}.{tenths % 10}%"


def _joined(*texts: str) -> str:
    return ", ".join(text for text in texts if text)
