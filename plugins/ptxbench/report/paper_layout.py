"""The layout of the paper's Tables 1 and 7: for each model and workload, a triplet over at most 1, 4 and 8 turns."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import groupby

from ptxbench.plain import visible
from ptxbench.report.cell import AtLimit, Cell, Rate
from ptxbench.report.notes import imported
from ptxbench.report.terminal import UNKNOWN, best_text, rate_text
from ptxbench.verdict.metrics import LIMITS, format_rate

WORKLOADS = {
    "gemm_n7168_k5120": "GEMM",
    "mha_with_lse_d128": "MHA-Fwd",
    "mha_with_lse_d128_causal": "MHA-Fwd-Causal",
    "mha_bwd_d128": "MHA-Bwd",
    "mha_bwd_d128_causal": "MHA-Bwd-Causal",
}
"""Cases -> the paper's names of its workloads, in its order. Other cases keep their own names and come after."""

NOT_GIVEN = "n/a"
"""The run gave its trajectories fewer turns than this."""

Text = Callable[[AtLimit], str]

_RATES = "Table 1 style: turn correctness rate, %, at <=1 / <=4 / <=8 turns"
_SPEEDUPS = "Table 7 style: best speedup at <=1 / <=4 / <=8 turns"
_LEGEND = (
    "inst: correct, and the architecture's own instructions are known to have executed. -: none. ?: an unknown keeps "
    "zero from being known. n/a: the run gave fewer turns. A turn that never happened counts as not correct."
)


def render_paper(cells: Sequence[Cell], width: int) -> list[str]:
    """Return the lines of both tables, one section per architecture, without line ends; notes fit ``width``."""
    order = {name: index for index, name in enumerate(WORKLOADS)}
    rows = sorted(cells, key=lambda cell: (cell.arch, cell.model, order.get(cell.case, len(order)), cell.case))
    lines: list[str] = []
    for title, any_, inst in (
        (_RATES, lambda at: rate_text(at.correct), lambda at: rate_text(at.target)),
        (_SPEEDUPS, _best, _target_best),
    ):
        lines += [*([""] if lines else []), title]
        for arch, section in groupby(rows, key=lambda cell: cell.arch):
            lines += _section(arch, list(section), any_, inst)
    texts = [*imported(rows), *_needed(rows), _LEGEND]
    return [
        *lines,
        "",
        *(line for text in texts for line in textwrap.wrap(visible(text), width, subsequent_indent="  ")),
    ]


def triplet(cell: Cell, text: Text) -> tuple[str, ...]:
    """Return a metric of a cell at each of the paper's limits."""
    by_limit = {at.limit: at for at in cell.limits}
    return tuple(text(by_limit[limit]) if limit in by_limit else NOT_GIVEN for limit in LIMITS)


def _workload(cell: Cell) -> str:
    return visible(WORKLOADS.get(cell.case, cell.case))


def _best(at: AtLimit) -> str:
    return best_text(at, inst=False)


def _target_best(at: AtLimit) -> str:
    return best_text(at, inst=True)


def _section(arch: str, cells: Sequence[Cell], any_: Text, inst: Text) -> list[str]:
    rows = [("model", "workload", "inst", "any")]
    rows += [
        (visible(cell.model), _workload(cell), "/".join(triplet(cell, inst)), "/".join(triplet(cell, any_)))
        for cell in cells
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        visible(arch.upper()),
        *("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows),
    ]


def _needed(cells: Sequence[Cell]) -> list[str]:
    """The rates without turns that were not needed, where those are other rates."""
    shown = []
    for cell in cells:
        if any(at.correct.unneeded for at in cell.limits):
            inst = "/".join(triplet(cell, lambda at: _of_needed(at.target)))
            any_ = "/".join(triplet(cell, lambda at: _of_needed(at.correct)))
            shown.append(f"{cell.model} {_workload(cell)} {cell.arch.upper()} inst {inst}, any {any_}")
    if not shown:
        return []
    return [f"Without the turns that were not needed, since a trajectory had reached its target: {'; '.join(shown)}."]


def _of_needed(rate: Rate) -> str:
    needed = rate.turns - rate.unneeded
    return UNKNOWN if needed <= 0 else format_rate(rate.hits, needed)
