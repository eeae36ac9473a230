"""Making text of models and tools safe to show."""

from __future__ import annotations

import unicodedata

MOST = 80
"""Characters of a name in a figure."""
_MARKUP = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}


def plain(text: str, most: int = MOST) -> str:
    """``text`` as one line in which a figure finds no markup: plotly reads some tags. Never for a template."""
    shown = visible(text)
    shown = shown if len(shown) <= most else f"{shown[: most - 2]}.."
    return "".join(_MARKUP.get(character, character) for character in shown)


def visible(text: str) -> str:
    """``text`` with control and formatting characters, also those that turn the direction of writing, spelled out."""
    return "".join(
        f"\\u{ord(character):04x}" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") else character
        for character in text
    )
