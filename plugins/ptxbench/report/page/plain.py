"""Names of models and cases in figures."""

from __future__ import annotations

from ptxbench.plain import visible

MOST = 80
"""Characters of a name in a figure."""
_MARKUP = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str, most: int = MOST) -> str:
    """``text`` as one line in which a figure finds no markup: plotly reads some tags. Never for a template."""
    shown = visible(text)
    shown = shown if len(shown) <= most else f"{shown[: most - 2]}.."
    return "".join(_MARKUP.get(character, character) for character in shown)
