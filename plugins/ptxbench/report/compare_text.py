"""A comparison as text: what differs around it, then cell by cell, regressions first."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from ptxbench.plain import visible
from ptxbench.report.calls import count_of
from ptxbench.report.cell import CellKey
from ptxbench.report.compare import Against, CellDelta, Comparison, Delta
from ptxbench.report.gates.expression import CORE
from ptxbench.report.terminal import MIN_WIDTH
from ptxbench.verdict.intervals import RESAMPLES
from ptxbench.verdict.metrics import DASH

_MARKS = {"regression": "REGRESSION", "undecided": "UNDECIDED", "improvement": "improvement", "none": ""}
_COLUMNS = (-11, -20, 8, 8, 9, 0)
"""Widths; negative ones align left."""
_CORE = tuple(map(str, CORE))


def render_comparison(comparison: Comparison, width: int) -> list[str]:
    """Return the lines of a comparison for a terminal ``width`` columns wide, without line ends."""
    lines = [
        f"{side.name}: {count_of(side.turns, 'turn')}, {_list(side.models)} on {_list(side.devices)}"
        for side in comparison.sides
    ]
    first = comparison.sides[0].name
    for against in comparison.against:
        lines += ["", *_against(against, first)]
    lines += ["", _legend(comparison)]
    return [part for line in lines for part in _wrapped(visible(line), max(width, MIN_WIDTH))]


def _against(against: Against, first: str) -> Iterator[str]:
    names = (first, against.name)
    yield (
        f"{against.name} against {first}: {count_of(len(against.cells), 'cell')}, "
        f"{count_of(against.count('regression'), 'regression')}, {against.count('undecided')} undecided, "
        f"{count_of(against.count('improvement'), 'improvement')}"
    )
    if not against.cells:
        yield "WARNING: no cell is in both, so nothing was compared"
    for difference in against.warnings:
        yield f"WARNING: {difference.text(names)}"
    mixed = [_name(cell) for cell in against.cells if cell.mixed]
    if mixed:
        yield f"WARNING: calls of one cell were not all made in one way: {_list(mixed)}"
    for name, only in zip(names, (against.only_before, against.only_after), strict=True):
        if only:
            yield f"only in {name}: {_list([_key(key) for key in only])}"
    for cell in against.cells:
        yield ""
        yield f"{_name(cell)} at <={cell.limit}, trajectories {cell.trajectories_before} and {cell.trajectories_after}"
        yield _row(("", "", "before", "after", "change", "  95% interval"))
        yield from (_delta(delta) for delta in cell.deltas if delta.metric in _CORE or delta.change != "none")


def _delta(delta: Delta) -> str:
    rate = not delta.metric.startswith("best_speedup")
    interval = "  none"
    if delta.interval is not None:
        interval = f"  {_signed(delta.interval[0], rate)} to {_signed(delta.interval[1], rate)}"
    note = f", {delta.unknown_after} unknown" if delta.unknown_after else ""
    difference = DASH if delta.difference is None else _signed(delta.difference, rate)
    values = (_value(delta.before, rate, delta.unknown_before), _value(delta.after, rate, delta.unknown_after))
    return _row((_MARKS[delta.change], delta.metric, *values, difference, f"{interval}{note}"))


def _value(value: float | None, rate: bool, unknown: int) -> str:
    if not value:
        return "?" if unknown else DASH
    return f"{value * 100:.1f}%" if rate else f"{value:.3f}"


def _signed(value: float, rate: bool) -> str:
    return f"{value * 100:+.1f}" if rate else f"{value:+.3f}"


def _row(texts: Sequence[str]) -> str:
    cells = zip(texts, _COLUMNS, strict=True)
    return " ".join(text.ljust(-width) if width < 0 else text.rjust(width) for text, width in cells).rstrip()


def _name(cell: CellDelta) -> str:
    other = "" if cell.after.model == cell.before.model else f" -> {cell.after.model}"
    return f"{cell.before.model}{other} {cell.before.case} {cell.before.arch}"


def _key(key: CellKey) -> str:
    return f"{key.model} {key.case} {key.arch}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nothing measured"


def _legend(comparison: Comparison) -> str:
    return (
        f"Regression: fell by more than {comparison.max_regression * 100:g}% of its value, interval below zero. "
        f"Intervals: bootstrap over trajectories of the difference, {RESAMPLES} resamples; none with fewer than two "
        "trajectories on a side, where the size alone decides. Undecided: unknown turns, of which those left out of N "
        "after are some, decide; or a cell is gone. Rates in percent of N, "
        "their changes in points. fast_p only where it changed; --json has everything."
    )


def _wrapped(line: str, width: int) -> list[str]:
    """Sentences are wrapped; rows, which begin with a mark or a space, stay what they are."""
    if not line or line.startswith((" ", *filter(None, _MARKS.values()))):
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="  ")
