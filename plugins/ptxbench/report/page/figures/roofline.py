"""Achieved FLOP/s under what the device could do."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.report.document import Roofline, TurnRow
from ptxbench.report.page.board import Board
from ptxbench.report.page.figures.base import Card, View, figure, logarithmic
from ptxbench.report.page.palette import FAINT, INK, MUTED, SURFACE, SubjectLook, faded, subject_looks
from ptxbench.report.page.plain import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

NEAREST = 0.01
"""Points of one workload and model that are closer than this share of their value are drawn once."""
APART = 0.018
"""Distance of two models beside each other, as a factor of the intensity less one."""


class _Point(NamedTuple):
    label: str
    case: str
    turn: TurnRow
    roof: Roofline

    @property
    def intensity(self) -> float:
        """FLOP per byte of compulsory traffic."""
        return self.roof.flops / self.roof.bytes


def roofline_card(board: Board) -> Card:
    """One view per device."""
    points: dict[str, list[_Point]] = defaultdict(list)
    for row in board.rows:
        for turn in row.turns:
            if turn.roofline is not None and turn.verdict.correct:
                points[turn.device or row.cell.arch].append(_Point(row.label, row.cell.case, turn, turn.roofline))
    return Card(
        key="roofline",
        section="roofline",
        title="Achieved FLOP/s",
        caption="Useful FLOP/s of correct turns against FLOP per byte of compulsory traffic, both by the suite's "
        "formulas, under the device's theoretical ceilings. The best of each model is filled; models are set beside "
        "each other. Press a point to see its turn.",
        views=tuple(
            View(plain(device), _roofline(found, subject_looks(board.labels)), _words(device, found))
            for device, found in sorted(points.items())
        ),
        height=470,
        wide=True,
        scrolls=True,
        nothing="No correct turn with a latency and a known workload.",
    )


def _roofline(points: Sequence[_Point], looks: dict[str, SubjectLook]) -> Figure:
    labels = list(dict.fromkeys(point.label for point in points))
    cases = {point.case: point.intensity for point in points}
    low, high = min(cases.values()) / 3, max(cases.values()) * 2
    peaks = [point.roof for point in points if point.roof.peak_tflops and point.roof.peak_gbytes_per_s]
    traces: list[dict[str, Any]] = []
    if peaks:
        roof = peaks[0]
        ridge = (roof.peak_tflops or 0) * 1e3 / (roof.peak_gbytes_per_s or 1)
        low = min(low, ridge * 0.7)
        traces.append(_roof(roof, low, high))
    marks = []
    for place, label in enumerate(labels):
        shift = (1 + APART) ** (place - (len(labels) - 1) / 2)
        marks.append(_marks([point for point in points if point.label == label], looks[label], shift))
    # The best ones on top of all others.
    traces += [faint for faint, _ in marks] + [best for _, best in marks]
    least = min(point.roof.tflops for point in points)
    most = max([point.roof.tflops for point in points] + [peak.peak_tflops or 0 for peak in peaks])
    return figure(
        traces,
        xaxis=logarithmic("FLOP per byte", low, high),
        # The names of the workloads stand below the points.
        yaxis=logarithmic("TFLOP/s", least / 4, most * 1.5),
        annotations=[_case_name(case, at) for case, at in cases.items()],
    )


def _roof(roof: Roofline, low: float, high: float) -> dict[str, Any]:
    peak, bandwidth = roof.peak_tflops or 0.0, (roof.peak_gbytes_per_s or 0.0) / 1e3
    ridge = peak / bandwidth
    xs = [low, max(low, ridge), high]
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [round(x, 3) for x in xs],
        "y": [round(min(peak, bandwidth * x), 3) for x in xs],
        "name": f"ceiling: {peak:.0f} TFLOP/s, {bandwidth:.1f} TB/s",
        "line": {"color": INK, "width": 1.6},
        "hoverinfo": "skip",
    }


def _marks(points: Iterable[_Point], look: SubjectLook, shift: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """All turns faintly, then the best of each workload."""
    best: dict[str, _Point] = {}
    others: dict[tuple[str, int], _Point] = {}
    for point in points:
        if point.case not in best or point.roof.tflops > best[point.case].roof.tflops:
            best[point.case] = point
        others[point.case, round(math.log(max(point.roof.tflops, 1e-9)) / NEAREST)] = point
    faint = [point for point in others.values() if best[point.case] is not point]
    filled = {"color": look.colour, "symbol": look.symbol, "size": 11, "line": {"color": SURFACE, "width": 1.2}}
    return (
        _scatter(faint, shift) | {"showlegend": False, "marker": _open(look)},
        _scatter(list(best.values()), shift) | {"marker": filled},
    )


def _open(look: SubjectLook) -> dict[str, Any]:
    return {
        "color": "rgba(0,0,0,0)",
        "symbol": look.symbol,
        "size": 6,
        "line": {"color": faded(look.colour, FAINT), "width": 1},
    }


def _scatter(points: Sequence[_Point], shift: float) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [round(point.intensity * shift, 2) for point in points],
        "y": [round(point.roof.tflops, 3) for point in points],
        "name": plain(points[0].label) if points else "",
        "legendgroup": plain(points[0].label) if points else "",
        # The page opens the turn; it is no part of any text of the figure.
        "customdata": [f"{point.label}\n{point.turn.id}" for point in points],
        "hovertemplate": "%{y:.0f} TFLOP/s",
    }


def _case_name(case: str, intensity: float) -> dict[str, Any]:
    return {
        "text": plain(case),
        "x": math.log10(intensity),
        "y": 0.01,
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "center",
        "textangle": -90,
        "showarrow": False,
        "font": {"size": 11, "color": MUTED},
    }


def _words(device: str, points: Iterable[_Point]) -> str:
    best: dict[str, float] = {}
    for point in points:
        best[point.case] = max(best.get(point.case, 0.0), point.roof.tflops)
    parts = ", ".join(f"{case} {tflops:.0f} TFLOP/s" for case, tflops in best.items())
    return f"Roofline of {device}. Best of each workload: {parts}."
