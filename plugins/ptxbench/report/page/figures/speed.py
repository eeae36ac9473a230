"""Fast_p against p, and best speedup and correctness against turns."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ptxbench.report.page.board import Board, Row, Variant, Workload
from ptxbench.report.page.figures.base import Card, View, axis, figure
from ptxbench.report.page.palette import MUTED, SURFACE, SubjectLook, faded, subject_looks
from ptxbench.report.page.plain import plain
from ptxbench.verdict.metrics import (
    TARGET_SPEEDUP,
    best_speedup,
    correctness_rate,
    format_speedup,
    nominal_turns,
    target_best_speedup,
    target_rate,
)

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

STEP = 0.01
"""Distance of the points of a curve on the axis of p."""
LEAST_P = 1.3
"""Curves go at least this far, so that those of different workloads compare."""
MOST_STEPS = 1000
"""Of a curve: a workload on which somebody is a thousand times faster has a coarser one."""


class Curve(NamedTuple):
    """Fast_p over a grid of p, percent: the mean over prompt variants, and the least and largest of them."""

    p: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def curve(variants: Sequence[Variant], limit: int, p: list[float], *, inst: bool) -> Curve:
    """Fast_p, or Fast_p^Inst, as ``ptxbench.verdict.metrics`` defines it, variant by variant."""
    shares = [_shares(variant, limit, p, inst=inst) for variant in variants]
    columns = list(zip(*shares, strict=True))
    return Curve(
        p=p,
        mean=[round(sum(column) / len(column), 2) for column in columns],
        low=[round(min(column), 2) for column in columns],
        high=[round(max(column), 2) for column in columns],
    )


def _shares(variant: Variant, limit: int, p: list[float], *, inst: bool) -> list[float]:
    total = nominal_turns(variant.results, limit, variant.trajectories).turns
    speedups = sorted(
        row.speedup
        for row in variant.results
        if row.speedup is not None
        and row.turn < limit
        and not row.excluded
        and (row.target_correct if inst else row.correct)
    )
    return [100 * (len(speedups) - bisect_right(speedups, at)) / total if total else 0.0 for at in p]


def fast_p_cards(board: Board) -> list[Card]:
    """One card per workload."""
    looks = subject_looks(board.labels)
    cards = []
    for number, workload in enumerate(board.workloads):
        rows = board.of_workload(workload)
        best = max(
            (found for row in rows if (found := best_speedup(row.results, _turns(row))) is not None), default=0.0
        )
        cards.append(
            Card(
                key=f"fast-p-{number}",
                section="fast-p",
                title=_title(workload),
                caption="",
                views=(View("Fast_p", _fast_p(rows, looks, best), _fast_p_words(rows, workload)),),
                height=400,
            )
        )
    return cards


def _title(workload: Workload) -> str:
    return f"{workload.case} on {workload.arch}"


def _turns(row: Row) -> int:
    return row.cell.turns_per_trajectory


def _fast_p(rows: Iterable[Row], looks: dict[str, SubjectLook], best: float) -> Figure:
    end = max(LEAST_P, best + 0.1)
    step = STEP * math.ceil(end / STEP / MOST_STEPS)
    p = [round(at * step, 2) for at in range(int(end / step) + 1)]
    bands: list[Any] = []
    lines: list[Any] = []
    for row in rows:
        look = looks[row.label]
        for inst in (False, True):
            found = curve(row.variants, _turns(row), p, inst=inst)
            bands.append(_band(row, found, look, inst=inst))
            lines.append(_line(row, found, look, inst=inst))
        lines += _best_marks(row, look, p)
    top = max((max(trace["y"], default=0) for trace in (*bands, *lines)), default=0)
    return figure(
        [*bands, *lines],
        xaxis=axis("speedup threshold p", range=[0, end], dtick=0.2 if end <= 4 else None),
        yaxis=axis("share of turns, %", range=[0, max(10.0, top * 1.08)]),
        shapes=[_guide("x", 1.0)],
    )


def _band(row: Row, found: Curve, look: SubjectLook, *, inst: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": found.p + found.p[::-1],
        "y": found.high + found.low[::-1],
        "fill": "toself",
        "fillcolor": faded(look.colour, 0.08 if inst else 0.14),
        "line": {"width": 0},
        "mode": "lines",
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": plain(row.label),
    }


def _line(row: Row, found: Curve, look: SubjectLook, *, inst: bool) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": found.p,
        "y": found.mean,
        "name": plain(row.label),
        "legendgroup": plain(row.label),
        "showlegend": not inst,
        "line": {"color": look.colour, "width": 1.8, "dash": "dot" if inst else "solid", "shape": "hv"},
        "hovertemplate": f"p %{{x}}: %{{y:.1f}}%{' with target instructions' if inst else ''}",
    }


def _best_marks(row: Row, look: SubjectLook, p: list[float]) -> list[dict[str, Any]]:
    """A filled mark at the best speedup, an open one at the best with target instructions where that is another."""
    limit = _turns(row)
    found = [(best_speedup(row.results, limit), False), (target_best_speedup(row.results, limit), True)]
    marks = []
    for best, inst in found:
        if best is None or (inst and best == found[0][0]):
            continue
        below = [at for at in p if at < best][-1:] or [0.0]
        height = curve(row.variants, limit, below, inst=inst).mean[0]
        marks.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [best],
                "y": [height],
                "showlegend": False,
                "legendgroup": plain(row.label),
                "name": plain(row.label),
                "marker": {
                    "color": SURFACE if inst else look.colour,
                    "size": 10,
                    "symbol": look.symbol,
                    "line": {"color": look.colour if inst else SURFACE, "width": 1.6},
                },
                "hovertemplate": f"best{' with target instructions' if inst else ''}: {format_speedup(best)}x",
            }
        )
    return marks


def _guide(axis_name: Literal["x", "y"], at: float) -> dict[str, Any]:
    other = "y" if axis_name == "x" else "x"
    place = {f"{axis_name}0": at, f"{axis_name}1": at, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper"}
    return {"type": "line", "line": {"color": MUTED, "width": 1, "dash": "dot"}, **place}


def _fast_p_words(rows: Iterable[Row], workload: Workload) -> str:
    found = [f"{row.label} best {format_speedup(best_speedup(row.results, _turns(row)))}" for row in rows]
    return f"Fast_p against p for {_title(workload)}: {'; '.join(found)}."


def turn_cards(board: Board) -> list[Card]:
    """Best speedup and rates against the number of turns, one card per workload."""
    looks = subject_looks(board.labels)
    return [
        Card(
            key=f"turns-{number}",
            section="turns",
            title=_title(workload),
            caption="",
            views=(
                View(
                    "best speedup and correct turns",
                    _against_turns(board.of_workload(workload), looks),
                    _turn_words(board.of_workload(workload)),
                ),
            ),
            height=470,
        )
        for number, workload in enumerate(board.workloads)
    ]


def _against_turns(rows: Sequence[Row], looks: dict[str, SubjectLook]) -> Figure:
    most = max(map(_turns, rows))
    traces: list[dict[str, Any]] = []
    for row in rows:
        limits = list(range(1, _turns(row) + 1))
        best = [best_speedup(row.results, limit) for limit in limits]
        target = [target_best_speedup(row.results, limit) for limit in limits]
        traces.append(_by_turn(row, looks, limits, best, "y", inst=False))
        traces.append(_by_turn(row, looks, limits, target, "y", inst=True))
        correct = _rates(row, limits, correctness_rate)
        traces.append(_by_turn(row, looks, limits, correct, "y2", inst=False))
        traces.append(_by_turn(row, looks, limits, _rates(row, limits, target_rate), "y2", inst=True))
    ticks = {"range": [0.7, most + 0.3], "dtick": 1 if most <= 16 else None}
    return figure(
        traces,
        xaxis=axis("turns counted", anchor="y2", **ticks),
        yaxis=axis("best speedup", domain=[0.56, 1], rangemode="tozero"),
        yaxis2=axis("correct turns, %", domain=[0, 0.44], rangemode="tozero"),
        shapes=[_guide("y", 1.0), _guide("y", TARGET_SPEEDUP)],
        legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top", "font": {"size": 12}},
    )


def _rates(row: Row, limits: Iterable[int], rate: Callable[..., Any]) -> list[float]:
    found: list[float] = []
    for limit in limits:
        share = rate(row.results, limit, row.cell.trajectories)
        found.append(round(100 * share.value, 2))
    return found


def _by_turn(
    row: Row,
    looks: dict[str, SubjectLook],
    limits: list[int],
    values: Sequence[float | None],
    yaxis: str,
    *,
    inst: bool,
) -> dict[str, Any]:
    look = looks[row.label]
    what = "%{y:.3f}x" if yaxis == "y" else "%{y:.1f}%"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": limits,
        "y": [None if value is None else round(value, 4) for value in values],
        "yaxis": yaxis,
        "name": plain(row.label),
        "legendgroup": plain(row.label),
        "showlegend": yaxis == "y" and not inst,
        "line": {"color": look.colour, "width": 1.8, "dash": "dot" if inst else "solid"},
        "marker": {
            "symbol": look.symbol,
            "size": 6,
            "color": SURFACE if inst else look.colour,
            "line": {"color": look.colour, "width": 1.2},
        },
        "hovertemplate": f"first %{{x}} turns: {what}{' with target instructions' if inst else ''}",
    }


def _turn_words(rows: Iterable[Row]) -> str:
    return "Best speedup and share of correct turns against turns: " + "; ".join(
        f"{row.label} {format_speedup(best_speedup(row.results, _turns(row)))}, "
        f"{100 * correctness_rate(row.results, _turns(row), row.cell.trajectories).value:.1f}% correct"
        for row in rows
    )
