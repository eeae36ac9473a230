"""What turns took: reasoning tokens, money, time."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ptxbench.records import Outcome
from ptxbench.report.document import TurnRow
from ptxbench.report.page.board import Board, Row
from ptxbench.report.page.figures.base import Card, View, axis, figure, logarithmic
from ptxbench.report.page.palette import OUTCOMES, SURFACE, faded, subject_looks
from ptxbench.report.page.plain import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_POINTS = 400
"""Turns up to which each is drawn as a point beside the boxes."""
STAGES: dict[str, tuple[str, str]] = {
    "model": ("model call", "#0072b2"),
    "build": ("build", "#e69f00"),
    "evaluate": ("evaluate", "#009e73"),
    "sanitize": ("sanitize", "#cc79a7"),
    "instructions": ("count instructions", "#56b4e9"),
    "judge": ("judge", "#8c898d"),
}
"""Stages of a turn in their order, with title and colour."""

Tokens = Literal["reasoning_tokens", "output_tokens"]


def token_card(board: Board) -> Card:
    """Reasoning tokens by outcome; output tokens where no provider counts reasoning apart."""
    turns = [turn for row in board.rows for turn in row.turns]
    apart = any(_tokens(turn, "reasoning_tokens") for turn in turns) or not any(
        _tokens(turn, "output_tokens") for turn in turns
    )
    kind: Tokens = "reasoning_tokens" if apart else "output_tokens"
    word = "Reasoning tokens" if kind == "reasoning_tokens" else "Output tokens"
    views = []
    for label, rows in board.by_label():
        groups = _by_outcome([turn for row in rows for turn in row.turns], kind)
        if groups:
            views.append(View(plain(label), _boxes(groups, word), _box_words(label, groups, word)))
    extra = "" if kind == "reasoning_tokens" else " No provider counted reasoning apart from the rest of the output."
    return Card(
        key="tokens",
        section="effort",
        title=f"{word} by outcome",
        caption="Boxes hold the middle half of the turns, the line is the median, whiskers reach from the 5th to the "
        f"95th percentile.{extra}",
        views=tuple(views),
        height=440,
        wide=True,
        nothing="The providers of these calls counted no tokens.",
    )


def _tokens(turn: TurnRow, kind: Tokens) -> int | None:
    return None if turn.call is None else getattr(turn.call.usage, kind)


def _by_outcome(turns: Iterable[TurnRow], kind: Tokens) -> dict[Outcome, list[int]]:
    groups: dict[Outcome, list[int]] = defaultdict(list)
    for turn in turns:
        tokens = _tokens(turn, kind)
        if tokens:  # a logarithmic axis has no zero
            groups[turn.verdict.outcome].append(tokens)
    return groups


def _boxes(groups: dict[Outcome, list[int]], word: str) -> Figure:
    present = [outcome for outcome in OUTCOMES if groups.get(outcome)]
    single = sum(map(len, groups.values())) <= MOST_POINTS
    traces: list[dict[str, Any]] = []
    for outcome in reversed(present):
        look, values = OUTCOMES[outcome], sorted(groups[outcome])
        name = f"{look.label} ({len(values)})"
        common = {"type": "box", "orientation": "h", "name": name, "showlegend": False, "line": {"width": 1.6}}
        common |= {"marker": {"color": look.colour, "size": 5}, "fillcolor": faded(look.colour, 0.35)}
        if single:
            traces.append(common | {"x": values, "boxpoints": "all", "jitter": 0.6, "pointpos": 0})
        else:
            traces.append(common | _quartiles(values, name))
    return figure(
        traces,
        xaxis=logarithmic(word.lower(), *_span(groups)),
        yaxis=axis(""),
        margin={"l": 130, "r": 16, "t": 12, "b": 48},
    )


def _span(groups: dict[Outcome, list[int]]) -> tuple[float, float]:
    values = [value for group in groups.values() for value in group]
    return min(values) * 0.9, max(values) * 1.1


def _quartiles(values: Sequence[int], name: str) -> dict[str, Any]:
    cuts = statistics.quantiles(values, n=20, method="inclusive") if len(values) > 1 else [float(values[0])] * 19
    low, first, middle, third, high = cuts[0], cuts[4], cuts[9], cuts[14], cuts[18]
    return {
        "q1": [first],
        "median": [middle],
        "q3": [third],
        "lowerfence": [low],
        "upperfence": [high],
        "y": [name],
    }


def _box_words(label: str, groups: dict[Outcome, list[int]], word: str) -> str:
    parts = [
        f"{OUTCOMES[outcome].label} {statistics.median(groups[outcome]):,.0f}"
        for outcome in OUTCOMES
        if groups.get(outcome)
    ]
    return f"{word} by outcome, {label}. Medians: {', '.join(parts)}."


def cost_card(board: Board) -> Card:
    """What each model cost, by workload."""
    costs: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    unpriced = 0
    for row in board.rows:
        if row.cell.calls is not None and row.cell.calls.unpriced < row.cell.calls.calls:
            costs[row.label][f"{row.cell.case} on {row.cell.arch}"] += row.cell.calls.cost_usd
        unpriced += row.cell.calls.unpriced if row.cell.calls is not None else 0
    labels = list(costs)
    names = list(dict.fromkeys(name for by_name in costs.values() for name in by_name))
    looks = subject_looks(names)
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(name),
            "y": [plain(label) for label in labels],
            "x": [round(costs[label][name], 4) for label in labels],
            "marker": {"color": looks[name].colour, "line": {"color": SURFACE, "width": 0.6}},
            "hovertemplate": "USD %{x:.2f}",
        }
        for name in names
    ]
    words = ", ".join(f"{label} USD {sum(costs[label].values()):.2f}" for label in labels)
    more = f" {unpriced} calls have no known price and are not in it." if unpriced and labels else ""
    return Card(
        key="cost",
        section="effort",
        title="Cost of the model calls",
        caption=f"US dollars, by workload.{more}",
        views=(View("", _bars(traces, "US dollars", labels), f"Cost by model: {words}."),) if labels else (),
        height=_height(labels),
        nothing="No call has a known price.",
    )


def time_card(board: Board) -> Card:
    """Mean wall time of a turn by stage."""
    spent = {label: _stage_means([row for row in board.rows if row.label == label]) for label in board.labels}
    labels = [label for label in spent if spent[label]]
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": title,
            "y": [plain(label) for label in labels],
            "x": [round(spent[label].get(stage, 0.0), 3) for label in labels],
            "marker": {"color": colour, "line": {"color": SURFACE, "width": 0.6}},
            "hovertemplate": "%{x:.1f} s",
        }
        for stage, (title, colour) in STAGES.items()
        if any(spent[label].get(stage) for label in labels)
    ]
    words = ", ".join(f"{label} {sum(spent[label].values()):.1f} s" for label in labels)
    return Card(
        key="time",
        section="effort",
        title="Time of a turn",
        caption="Mean wall time, by stage. Stages of different turns overlap, so a run takes less than their sum.",
        views=(View("", _bars(traces, "seconds", labels), f"Mean time of a turn: {words}."),) if labels else (),
        height=_height(labels),
        nothing="These turns have no times.",
    )


def _stage_means(rows: Iterable[Row]) -> dict[str, float]:
    """Seconds of each stage, over all turns, also those that never came to it."""
    turns = [turn for row in rows for turn in row.turns]
    sums: dict[str, float] = defaultdict(float)
    for turn in turns:
        if turn.call is not None:
            sums["model"] += turn.call.latency_s
        for stage, milliseconds in turn.stages_ms.items():
            if stage in STAGES:
                sums[stage] += milliseconds / 1e3
    return {stage: total / len(turns) for stage, total in sums.items()}


def _bars(traces: list[dict[str, Any]], unit: str, labels: Sequence[str]) -> Figure:
    for trace in traces if len(labels) < 3 else ():
        trace["width"] = 0.55
    below = -60 / max(1, _height(labels) - 120)
    return figure(
        traces,
        barmode="stack",
        xaxis=axis(unit),
        yaxis=axis("", autorange="reversed"),
        legend={"orientation": "h", "x": 0, "y": below, "yanchor": "top", "font": {"size": 12}, "traceorder": "normal"},
    )


def _height(labels: Sequence[str]) -> int:
    return 230 + 34 * max(1, len(labels))
