"""Colours of figures and page. An outcome has the same colour wherever it appears, in light and in dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ptxbench.records import Outcome

INK = "#1f2328"
MUTED = "#626a73"
GRID = "#e1e4e8"
SURFACE = "#ffffff"


class Look(NamedTuple):
    """How an outcome, or a turn that never happened, is shown."""

    label: str
    colour: str
    glyph: str
    """One character, so that nothing rests on colour alone."""


OUTCOMES: dict[Outcome, Look] = {
    Outcome.CORRECT: Look("correct", "#38ae65", "✓"),
    Outcome.NUMERICAL_ERROR: Look("numerical error", "#da6f00", "N"),
    Outcome.WRONG_SHAPE_OR_DTYPE: Look("wrong shape or dtype", "#c0d228", "W"),
    Outcome.TIMEOUT: Look("timeout", "#ffa7e8", "T"),
    Outcome.RUNTIME_ERROR: Look("runtime error", "#bf3815", "R"),
    Outcome.MEMORY_ERROR: Look("memory error", "#aa1182", "M"),
    Outcome.COMPILE_ERROR: Look("compile error", "#0f7daa", "C"),
    Outcome.SCREENED: Look("screened", "#7257db", "S"),
    Outcome.EXTRACTION_ERROR: Look("extraction error", "#25a7ff", "E"),
    Outcome.UNKNOWN: Look("unknown", "#8c898d", "?"),
    Outcome.INFRASTRUCTURE_ERROR: Look("infrastructure error", "#545b4c", "!"),
}
"""From best to worst known, then what is not known.

Found by a search: under normal vision and under simulated protanopia, deuteranopia and tritanopia (Machado 2009) any
two are at least 13 apart in CIELAB, and each stands out from a white and from a near-black page. A test repeats this.
"""


def faded(colour: str, opacity: float) -> str:
    """A ``#rrggbb`` colour as ``rgba()``."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


FLOW = 0.38
"""Opacity of the bands of a flow."""

NOT_TAKEN: dict[str, Look] = {
    "target_reached": Look("ended: target reached", "#d3e8da", "·"),
    "context_exhausted": Look("ended: context full", "#e6d7c3", "·"),
    "not_asked": Look("not asked for", "#d9dbe0", "·"),
    "no_record": Look("did not happen", "#e3d3e6", "·"),
}
"""Turns that never happened, by why; drawn hatched."""

_SUBJECTS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9", "#7f4fc9", "#8c564b")
FAINT = 0.45
"""Opacity of points that are not the best ones."""

_DARK = {INK: "#e8eaed", MUTED: "#a0a7b0", GRID: "#343a42", SURFACE: "#171a1f"}
_DARK_NOT_TAKEN = {
    "target_reached": "#2c4a37",
    "context_exhausted": "#4d4232",
    "not_asked": "#3a3f47",
    "no_record": "#483a4d",
}
DARK = (
    _DARK
    | {NOT_TAKEN[name].colour: colour for name, colour in _DARK_NOT_TAKEN.items()}
    | {faded(NOT_TAKEN[name].colour, FLOW): faded(colour, 0.7) for name, colour in _DARK_NOT_TAKEN.items()}
    | {faded(colour, FAINT): faded(colour, 0.95) for colour in _SUBJECTS}
)
"""What stands for the neutral and the faint colours of a figure in dark: the page replaces them, and nothing else."""

_SYMBOLS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "star", "hexagon")


class SubjectLook(NamedTuple):
    """How a model is shown in figures that compare models."""

    colour: str
    symbol: str


def subject_looks(labels: Sequence[str]) -> dict[str, SubjectLook]:
    """Colour and symbol of each label, by its place. Beyond eight the colours come again with other symbols."""
    count = len(_SUBJECTS)
    return {
        label: SubjectLook(_SUBJECTS[at % count], _SYMBOLS[(at + at // count) % count])
        for at, label in enumerate(labels)
    }


def luminance(colour: str) -> float:
    """Relative luminance of a ``#rrggbb`` colour (WCAG 2), 0..1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def needs_white(colour: str) -> bool:
    """Whether white text stands out better than black text."""
    return 1.05 / (luminance(colour) + 0.05) > (luminance(colour) + 0.05) / 0.05
