"""What adapting a model changed beside outcomes: reasoning by turn; and what the training was made of."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from ptxbench.report.dataset import Manifest
from ptxbench.report.document import TurnRow
from ptxbench.report.page.adaptation import Adaptation
from ptxbench.report.page.figures.base import LOOKS, Card, View, axis, figure
from ptxbench.report.page.figures.transitions import title_of, transition_card
from ptxbench.report.page.palette import INK, SURFACE, SubjectLook, faded, subject_looks
from ptxbench.report.page.plain import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Tokens = Literal["reasoning_tokens", "output_tokens"]
_FACETS: dict[str, Callable[[Manifest], dict[str, int]]] = {
    "workload": lambda manifest: {" on ".join(name.rsplit(" ", 1)): count for name, count in manifest.by_case.items()},
    "repaired outcome": lambda manifest: manifest.by_outcome,
    "turn": lambda manifest: {f"turn {number}": count for number, count in manifest.by_turn.items()},
    "repair teacher": lambda manifest: manifest.by_repair_teacher,
    "reasoning teacher": lambda manifest: manifest.by_teacher,
}


def adaptation_cards(adaptation: Adaptation) -> list[Card]:
    """Transitions, reasoning and recipes. The transfer table is no figure."""
    return [transition_card(adaptation), reasoning_card(adaptation), recipe_card(adaptation)]


def reasoning_card(adaptation: Adaptation) -> Card:
    """Tokens of reasoning by turn: median and middle half, for each side."""
    turns = [turn for side in adaptation.sides for turn in side.turns]
    kind: Tokens = "reasoning_tokens" if any(_tokens(turn, "reasoning_tokens") for turn in turns) else "output_tokens"
    word = "Reasoning tokens" if kind == "reasoning_tokens" else "Output tokens"
    looks = subject_looks([side.name for side in adaptation.sides])
    found = {side.name: _by_turn(side.turns, kind) for side in adaptation.sides}
    traces = [trace for name, by_turn in found.items() if by_turn for trace in _lines(name, by_turn, looks[name])]
    most = max((turn for by_turn in found.values() for turn in by_turn), default=0)
    drawn = figure(
        traces,
        xaxis=axis("turn", dtick=1 if most < 16 else None),
        yaxis=axis(word.lower(), rangemode="tozero"),
    )
    extra = "" if kind == "reasoning_tokens" else " No provider counted reasoning apart from the rest of the output."
    return Card(
        key="adapt-reasoning",
        section="adaptation",
        title=f"{word} by turn",
        caption=f"Lines are medians, bands hold the middle half of the turns.{extra}",
        views=(View("", drawn, _length_words(word, found)),) if traces else (),
        height=400,
        nothing="The providers of these calls counted no tokens.",
    )


def _tokens(turn: TurnRow, kind: Tokens) -> int | None:
    return None if turn.call is None else getattr(turn.call.usage, kind)


def _by_turn(turns: Iterable[TurnRow], kind: Tokens) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for turn in turns:
        tokens = _tokens(turn, kind)
        if tokens is not None:
            found[turn.key.turn].append(tokens)
    return {number: sorted(found[number]) for number in sorted(found)}


def _lines(name: str, by_turn: dict[int, list[int]], look: SubjectLook) -> list[dict[str, Any]]:
    numbers = list(by_turn)
    cuts = [
        statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [float(values[0])] * 3
        for values in by_turn.values()
    ]
    common = {"x": numbers, "legendgroup": plain(name), "name": plain(name)}
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    return [
        {"type": "scatter", **common, **band, "y": [round(cut[0], 1) for cut in cuts]},
        {
            "type": "scatter",
            **common,
            **band,
            "y": [round(cut[2], 1) for cut in cuts],
            "fill": "tonexty",
            "fillcolor": faded(look.colour, 0.16),
        },
        {
            "type": "scatter",
            **common,
            "mode": "lines+markers",
            "y": [round(cut[1], 1) for cut in cuts],
            "line": {"color": look.colour, "width": 2},
            "marker": {"color": look.colour, "symbol": look.symbol, "size": 7, "line": {"color": SURFACE, "width": 1}},
            "customdata": [len(values) for values in by_turn.values()],
            "hovertemplate": "turn %{x}: %{y:,.0f}, %{customdata} turns",
        },
    ]


def _length_words(word: str, found: Mapping[str, dict[int, list[int]]]) -> str:
    parts = [
        f"{name} from {statistics.median(by_turn[min(by_turn)]):,.0f} in turn {min(by_turn)} to "
        f"{statistics.median(by_turn[max(by_turn)]):,.0f} in turn {max(by_turn)}"
        for name, by_turn in found.items()
        if by_turn
    ]
    return f"Median {word.lower()} by turn: {'; '.join(parts)}."


def recipe_card(adaptation: Adaptation) -> Card:
    """One ring for each dataset and each thing that tells its records apart."""
    manifests: list[Manifest] = []
    for one in adaptation.adapted:
        if one.manifest not in manifests:
            manifests.append(one.manifest)
    views = []
    for manifest in manifests:
        for facet, counts_of in _FACETS.items():
            counts = counts_of(manifest)
            shown = f"by {facet}" if len(manifests) == 1 else f"{plain(manifest.name)} by {facet}"
            views.append(View(shown, _ring(counts), _ring_words(manifest, facet, counts)))
    return Card(
        key="adapt-recipe",
        section="adaptation",
        title="What the training was made of",
        caption="Records of the dataset; a repaired outcome is that of the kernel that a teacher repaired.",
        views=tuple(views),
        height=420,
    )


def _ring(counts: Mapping[str, int]) -> Figure:
    names = sorted(counts, key=lambda name: (-counts[name], name))
    looks = subject_looks(names)
    colours = [LOOKS[name].colour if name in LOOKS else looks[name].colour for name in names]
    ring = {
        "type": "pie",
        "labels": [plain(title_of(name)) for name in names],
        "values": [counts[name] for name in names],
        "hole": 0.45,
        "sort": False,
        "direction": "clockwise",
        "texttemplate": "%{percent:.0%}",
        "textposition": "inside",
        "insidetextorientation": "horizontal",
        "marker": {"colors": colours, "line": {"color": SURFACE, "width": 1.5}},
        "hovertemplate": "%{label}: %{value} records<extra></extra>",
        "showlegend": False,
    }
    keys = [
        {
            "type": "scatter",
            "x": [None],
            "y": [None],
            "mode": "markers",
            "marker": {"symbol": "square", "size": 11, "color": colour},
            "name": f"{plain(title_of(name))}: {counts[name]:,}",
            "hoverinfo": "skip",
        }
        for name, colour in zip(names, colours, strict=True)
    ]
    total = {"text": f"{sum(counts.values()):,}", "x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    return figure(
        [ring, *keys],
        margin={"l": 8, "r": 8, "t": 12, "b": 12},
        xaxis={"visible": False, "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        annotations=[total | {"showarrow": False, "font": {"size": 20, "color": INK}}],
    )


def _ring_words(manifest: Manifest, facet: str, counts: Mapping[str, int]) -> str:
    parts = ", ".join(f"{title_of(name)} {count:,}" for name, count in counts.items())
    return f"Records of {manifest.name} by {facet}: {parts}."
