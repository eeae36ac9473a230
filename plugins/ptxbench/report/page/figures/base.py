"""What all figures share: sizes, neutral colours, and the card that shows one or several of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from ptxbench.report.page.palette import GRID, INK, MUTED, NOT_TAKEN, OUTCOMES, Look

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LOOKS: dict[str, Look] = {outcome.value: look for outcome, look in OUTCOMES.items()} | NOT_TAKEN
"""Outcomes and turns that never happened, by the names that reports use."""


class View(NamedTuple):
    """One figure, with what it says in words for those who cannot see it."""

    name: str
    figure: Figure
    words: str


class Card(NamedTuple):
    """Figures about one question, of which one at a time is shown."""

    key: str
    """Names files and elements: letters, digits and hyphens."""
    section: str
    title: str
    caption: str
    views: tuple[View, ...]
    height: int = 380
    """Pixels."""
    wide: bool = False
    """Takes the whole width of the page."""
    scrolls: bool = False
    """Keeps a least width on a narrow page, and scrolls sideways there."""
    nothing: str = ""
    """Why there is no figure."""


def figure(traces: list[Any], **layout: Any) -> Figure:  # noqa: ANN401 - whatever plotly takes
    """A figure in our style. Figures are complete in light; the page replaces neutral colours for dark."""
    from plotly.graph_objects import Figure

    base: dict[str, Any] = {
        # Empty, since plotly's own template is large and would be in every figure.
        "template": {},
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 12}},
        "hoverlabel": {"font": {"family": FONT, "size": 12}},
        "hovermode": "closest",
        "dragmode": False,
    }
    return Figure(data=traces, layout=base | layout)


def axis(title: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever plotly takes
    """An axis in our style."""
    return {
        "title": {"text": title, "font": {"size": 12, "color": MUTED}, "standoff": 8},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "tickfont": {"size": 12},
        "automargin": True,
        "fixedrange": True,
    } | more


def logarithmic(title: str, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis from ``low`` to ``high``, both above 0, with ticks at 1, 2 and 5 times powers of ten."""
    steps = [digit * 10.0**power for power in range(-3, 10) for digit in (1, 2, 5)]
    ticks = [step for step in steps if low <= step <= high]
    return axis(
        title,
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickvals=ticks,
        ticktext=[_short(tick) for tick in ticks],
    )


def _short(number: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{unit}"
    return f"{number:g}"


def hatching(name: str) -> dict[str, Any]:
    """The pattern of a bar: turns that never happened are hatched."""
    if name not in NOT_TAKEN:
        return {"shape": ""}
    return {"shape": "/", "size": 6, "solidity": 0.2, "fgcolor": MUTED, "fillmode": "overlay"}
