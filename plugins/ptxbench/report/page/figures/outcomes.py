"""Outcomes by turn, and how they follow each other."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.records import Outcome, Target
from ptxbench.report.page.board import Board, Row
from ptxbench.report.page.figures.base import LOOKS, Card, View, axis, figure, hatching
from ptxbench.report.page.palette import FLOW, MUTED, NOT_TAKEN, OUTCOMES, SURFACE, faded
from ptxbench.report.page.plain import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ORDER = tuple(LOOKS)
_Node = tuple[int, str]
"""A turn and what became of it."""
_WITHOUT = {"shape": "\\", "size": 6, "solidity": 0.35, "fgcolor": SURFACE, "fillmode": "overlay"}
_GAP = 0.016
"""Between two nodes of a column, as a share of the height."""


class _Taken(NamedTuple):
    """What became of one planned turn."""

    trajectory: tuple[int, str]
    turn: int
    state: str
    without_target: bool
    """Correct, and no target instruction is known to have executed."""


def _all_turns(rows: Iterable[Row]) -> list[_Taken]:
    found = []
    for number, row in enumerate(rows):
        for turn in row.turns:
            verdict = turn.verdict
            without = verdict.outcome is Outcome.CORRECT and verdict.target is not Target.EXECUTED
            place = (number, turn.key.trajectory_id)
            found.append(_Taken(place, turn.key.turn, verdict.outcome.value, without))
        found += [_Taken((number, name), turn, why, False) for (name, turn), why in row.missing.items()]
    return found


def outcome_cards(board: Board) -> list[Card]:
    """The stack and the flow, each for all models and for each."""
    groups = [(label, _all_turns(rows)) for label, rows in board.by_label()]
    stacks = tuple(View(plain(label), _stack(turns), _stack_words(label, turns)) for label, turns in groups)
    flows = tuple(
        View(plain(label), _flow(turns), _flow_words(label, turns))
        for label, turns in groups
        if any(turn.turn > 0 for turn in turns)
    )
    return [
        Card(
            key="outcomes",
            section="outcomes",
            title="Outcomes by turn",
            caption="Every planned turn. Of correct turns, the hatched part has no target instruction that is known to "
            "have executed; pale hatched turns never happened.",
            views=stacks,
            height=420,
            wide=True,
        ),
        Card(
            key="flow",
            section="outcomes",
            title="From turn to turn",
            caption="What trajectories went through. Columns are turns; a band is as wide as the number of "
            "trajectories that went from one outcome to the next.",
            views=flows,
            height=480,
            wide=True,
            scrolls=True,
            nothing="No trajectory was given a second turn.",
        ),
    ]


def _stack(turns: Sequence[_Taken]) -> Figure:
    numbers = list(range(max((turn.turn for turn in turns), default=0) + 1))
    counts = Counter((turn.state, turn.without_target, turn.turn) for turn in turns)
    traces = []
    for state in ORDER:
        for without in (False, True):
            heights = [counts[state, without, number] for number in numbers]
            if any(heights):
                traces.append(_bars(state, numbers, heights, without=without))
    return figure(
        traces,
        barmode="stack",
        bargap=0.18,
        xaxis=axis("turn", dtick=1 if len(numbers) <= 16 else None),
        yaxis=axis("turns", dtick=1 if sum(turn.turn == 0 for turn in turns) <= 10 else None),
        legend={"orientation": "h", "x": 0, "y": -0.18, "yanchor": "top", "font": {"size": 12}, "traceorder": "normal"},
    )


def _bars(state: str, numbers: list[int], heights: list[int], *, without: bool) -> dict[str, Any]:
    look = LOOKS[state]
    pattern = _WITHOUT if without else hatching(state)
    name = f"{look.label}, without target" if without else look.label
    return {
        "type": "bar",
        "name": name,
        "x": numbers,
        "y": heights,
        "marker": {"color": look.colour, "pattern": pattern, "line": {"color": SURFACE, "width": 0.6}},
        "hovertemplate": "turn %{x}: %{y}",
    }


def _stack_words(label: str, turns: Sequence[_Taken]) -> str:
    counts = Counter(turn.state for turn in turns)
    parts = ", ".join(f"{counts[state]} {LOOKS[state].label}" for state in ORDER if counts[state])
    return f"Outcomes by turn, {label}: {parts}."


def _flow(turns: Sequence[_Taken]) -> Figure:
    columns: dict[int, Counter[str]] = defaultdict(Counter)
    paths: dict[tuple[int, str], dict[int, str]] = defaultdict(dict)
    for turn in turns:
        columns[turn.turn][turn.state] += 1
        paths[turn.trajectory][turn.turn] = turn.state
    links = Counter(
        (number, state, path[number + 1])
        for path in paths.values()
        for number, state in path.items()
        if number + 1 in path
    )
    nodes = [(number, state) for number in sorted(columns) for state in ORDER if columns[number][state]]
    seen = {state for _, state in nodes}
    last = max(columns)
    return figure(
        [_bands(nodes, _places(columns), links), *(_key(state) for state in ORDER if state in seen)],
        margin={"l": 12, "r": 12, "t": 30, "b": 12},
        xaxis={"visible": False, "fixedrange": True},
        yaxis={"visible": False, "fixedrange": True},
        legend={"orientation": "h", "x": 0, "y": -0.04, "yanchor": "top", "font": {"size": 12}},
        annotations=[_heading(number, last) for number in sorted(columns)],
    )


def _bands(
    nodes: Sequence[_Node], places: Mapping[_Node, tuple[float, float]], links: Mapping[tuple[int, str, str], int]
) -> dict[str, Any]:
    """The diagram: ``links`` counts the trajectories from a turn's state to the next turn's."""
    index = {node: at for at, node in enumerate(nodes)}
    return {
        "type": "sankey",
        "arrangement": "fixed",
        "node": {
            "label": [""] * len(nodes),
            "color": [LOOKS[state].colour for _, state in nodes],
            "x": [places[node][0] for node in nodes],
            "y": [places[node][1] for node in nodes],
            "pad": 6,
            "thickness": 14,
            "line": {"width": 0.5, "color": SURFACE},
            "customdata": [f"turn {number}: {LOOKS[state].label}" for number, state in nodes],
            "hovertemplate": "%{customdata}, %{value}<extra></extra>",
        },
        "link": {
            "source": [index[number, before] for number, before, _ in links],
            "target": [index[number + 1, after] for number, _, after in links],
            "value": list(links.values()),
            "color": [faded(LOOKS[before].colour, FLOW) for _, before, _ in links],
            "customdata": [f"{LOOKS[before].label} → {LOOKS[after].label}" for _, before, after in links],
            "hovertemplate": "%{customdata}, %{value}<extra></extra>",
        },
    }


def _places(columns: dict[int, Counter[str]]) -> dict[_Node, tuple[float, float]]:
    """Centre of each node, 0..1: in every column the same order, so that the eye can follow one outcome."""
    last = max(columns) or 1
    # As plotly scales: so that the column with the least room for values fits.
    scale = min((1 - _GAP * (len(+column) - 1)) / sum(column.values()) for column in columns.values())
    found = {}
    for number, column in columns.items():
        top = 0.0
        for state in (state for state in ORDER if column[state]):
            height = scale * column[state]
            # Plotly takes 0 for not given.
            found[number, state] = (min(0.999, max(0.001, number / last)), min(0.999, max(0.001, top + height / 2)))
            top += height + _GAP
    return found


def _key(state: str) -> dict[str, Any]:
    """An entry of the legend, which a Sankey diagram has not by itself."""
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "markers",
        "marker": {"symbol": "square", "size": 11, "color": LOOKS[state].colour},
        "name": LOOKS[state].label,
        "hoverinfo": "skip",
    }


def _heading(number: int, last: int) -> dict[str, Any]:
    return {
        "text": f"turn {number}" if number in (0, last) else str(number),
        "x": number / max(last, 1),
        "y": 1.0,
        "xref": "paper",
        "yref": "paper",
        "yanchor": "bottom",
        "xanchor": "left" if number == 0 else "right" if number == last else "center",
        "showarrow": False,
        "font": {"size": 12, "color": MUTED},
    }


def _flow_words(label: str, turns: Sequence[_Taken]) -> str:
    ends: dict[tuple[int, str], _Taken] = {}
    for turn in turns:
        if turn.state not in NOT_TAKEN and turn.turn >= ends.get(turn.trajectory, turn).turn:
            ends[turn.trajectory] = turn
    counts = Counter(turn.state for turn in ends.values())
    parts = ", ".join(f"{counts[look]} {OUTCOMES[look].label}" for look in OUTCOMES if counts[look])
    return f"Transitions between outcomes, {label}. Last turns of trajectories: {parts}."
