"""Which outcomes follow which, of a base model and of what was made of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ptxbench.records import Outcome
from ptxbench.report.page.adaptation import Adaptation, Side
from ptxbench.report.page.figures.base import LOOKS, Card, View, axis, figure
from ptxbench.report.page.palette import OUTCOMES, SURFACE
from ptxbench.report.page.plain import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FIRST = "first turn"
LESS, MORE, SHARE = "#d55e00", "#0072b2", "#0072b2"
"""Of heat maps; between them is the page's surface, also in dark."""
_JUDGED = tuple(outcome for outcome in OUTCOMES if outcome is not Outcome.INFRASTRUCTURE_ERROR)
Steps = dict[tuple[str, Outcome], int]
"""From what (FIRST, or an outcome) to what -> how often."""


def steps_of(side: Side) -> Steps:
    """How often each outcome came first, and how often it followed each outcome in the next turn of a trajectory.

    Turns that an infrastructure fault excluded are neither.
    """
    steps: Steps = Counter()
    for row in side.rows:
        paths: dict[str, dict[int, Outcome]] = defaultdict(dict)
        for turn in row.turns:
            if turn.verdict.outcome is not Outcome.INFRASTRUCTURE_ERROR:
                paths[turn.key.trajectory_id][turn.key.turn] = turn.verdict.outcome
        for path in paths.values():
            for number, outcome in path.items():
                if number == 0:
                    steps[FIRST, outcome] += 1
                elif number - 1 in path:
                    steps[path[number - 1].value, outcome] += 1
    return dict(steps)


def transition_card(adaptation: Adaptation) -> Card:
    """Heat maps: the change of each adapted model against the base, then each side's own shares."""
    found = [(side, steps_of(side)) for side in adaptation.sides]
    rows, columns = _extent(steps for _, steps in found)
    base = found[0][1]
    views = [
        View(
            f"{plain(side.name)} against {plain(adaptation.base.name)}",
            _heat(rows, columns, _change(base, steps), change=True),
            _change_words(side, base, steps),
        )
        for side, steps in found[1:]
    ]
    views += [
        View(plain(side.name), _heat(rows, columns, _shares(steps), change=False), _share_words(side, steps))
        for side, steps in found
    ]
    return Card(
        key="adapt-transitions",
        section="adaptation",
        title="What follows what, before and after",
        caption="Each row is an outcome, and how often each outcome came in the next turn, in percent of its turns; "
        "changes are in percentage points. Rows with no such turn on a side are empty.",
        views=tuple(views) if rows and columns else (),
        height=150 + 40 * len(rows),
        wide=True,
        scrolls=True,
        nothing="No turn was judged.",
    )


def _extent(found: Iterable[Steps]) -> tuple[list[str], list[Outcome]]:
    keys = [key for steps in found for key in steps]
    before, after = {key[0] for key in keys}, {key[1] for key in keys}
    order = [FIRST, *(outcome.value for outcome in _JUDGED)]
    return [name for name in order if name in before], [outcome for outcome in _JUDGED if outcome in after]


_Cells = Mapping[tuple[str, Outcome], tuple[float, str]]
"""Value in percent, and what it is made of."""


def _shares(steps: Steps) -> _Cells:
    totals: Counter[str] = Counter()
    for (before, _), count in steps.items():
        totals[before] += count
    return {
        (before, after): (100 * steps.get((before, after), 0) / total, f"{steps.get((before, after), 0)} of {total}")
        for before, total in totals.items()
        for after in _JUDGED
    }


def _change(base: Steps, steps: Steps) -> _Cells:
    before, after = _shares(base), _shares(steps)
    return {
        key: (after[key][0] - before[key][0], f"{before[key][1]}, then {after[key][1]}")
        for key in before.keys() & after.keys()
    }


def _heat(rows: Sequence[str], columns: Sequence[Outcome], cells: _Cells, *, change: bool) -> Figure:
    values = [[_value(cells, row, column) for column in columns] for row in rows]
    told = [[cells.get((row, column), (0.0, ""))[1] for column in columns] for row in rows]
    scale = [[0, LESS], [0.5, SURFACE], [1, MORE]] if change else [[0, SURFACE], [1, SHARE]]
    trace = {
        "type": "heatmap",
        "x": [title_of(column.value) for column in columns],
        "y": [title_of(row) for row in rows],
        "z": values,
        "text": [[_shown(value, change=change) for value in line] for line in values],
        "customdata": told,
        "texttemplate": "%{text}",
        "hovertemplate": "%{y} → %{x}: %{text}<br>%{customdata} turns<extra></extra>",
        "hoverongaps": False,
        "colorscale": scale,
        "zmin": -100 if change else 0,
        "zmax": 100,
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
    }
    return figure(
        [trace],
        xaxis=axis("next turn", side="top", showgrid=False, type="category"),
        yaxis=axis("", autorange="reversed", showgrid=False, type="category"),
        margin={"l": 150, "r": 12, "t": 60, "b": 12},
    )


def _value(cells: _Cells, row: str, column: Outcome) -> float | None:
    found = cells.get((row, column))
    return None if found is None else round(found[0], 1)


def title_of(name: str) -> str:
    """An outcome in words; any other name as it is."""
    return LOOKS[name].label if name in LOOKS else name


def _shown(value: float | None, *, change: bool) -> str:
    if not value:
        return ""
    whole = round(value)
    return f"{whole:+d}" if change and whole else str(whole)


def _change_words(side: Side, base: Steps, steps: Steps) -> str:
    found = {before: value for (before, after), (value, _) in _change(base, steps).items() if after is Outcome.CORRECT}
    order = [name for name in (FIRST, *(outcome.value for outcome in _JUDGED)) if name in found]
    parts = ", ".join(f"after {title_of(name)} {round(found[name]):+d} points" for name in order)
    return f"Share of correct turns that follow, {side.name} against the base model: {parts or 'nothing to compare'}."


def _share_words(side: Side, steps: Steps) -> str:
    shares = _shares(steps)
    order = [name for name in (FIRST, *(outcome.value for outcome in _JUDGED)) if (name, Outcome.CORRECT) in shares]
    parts = ", ".join(f"after {title_of(name)} {shares[name, Outcome.CORRECT][0]:.0f}%" for name in order)
    return f"Share of correct turns that follow, {side.name}: {parts or 'none'}."
