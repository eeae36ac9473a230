"""A text with a place in it, and errors that point at the place."""

from __future__ import annotations

import re
import unicodedata
from typing import NoReturn

from ptxbench.errors import InputError

_SPACE = re.compile(r"[ \t\r\n]*")
_FOUND = re.compile(r"[A-Za-z0-9_.%]+|[<>=!]+|.", re.DOTALL)
MOST_FOUND = 40
"""Characters of what was found that an error repeats."""


class Scanner:
    """Reads a gate from left to right. ``at`` is the index of what comes next, spaces skipped."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self._skip()

    @property
    def ended(self) -> bool:
        """Whether nothing follows."""
        return self.at >= len(self.text)

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """What matches here, consumed with the spaces behind it; None, and nothing consumed, where nothing does."""
        match = pattern.match(self.text, self.at)
        if match is None or not match[0]:
            return None
        self.at = match.end()
        self._skip()
        return match[0]

    def takes(self, literal: str) -> bool:
        """Whether this very text comes next; it is consumed then."""
        return self.take(re.compile(re.escape(literal))) is not None

    def fail(self, expected: str, advice: str = "", at: int | None = None) -> NoReturn:
        """Raise the InputError of the place ``at``, by default of what comes next."""
        at = self.at if at is None else at
        match = _FOUND.match(self.text, at)
        shown = plain(match[0])[:MOST_FOUND] if match else ""
        found = f"{shown!r} at column {at + 1}" if shown else f"the end at column {at + 1}"
        line, margin = plain(self.text), " " * display_width(plain(self.text[:at]))
        advice = advice or "docs/ci.md describes the language"
        raise InputError(f"--gate: expected {expected}, found {found}; {advice}\n  {line}\n  {margin}^")

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at


def plain(text: str) -> str:
    """The text in one line, with a question mark for everything that a terminal would not show as one character."""
    return "".join(" " if char in "\t\r\n" else char if char.isprintable() else "?" for char in text)


def display_width(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
        for char in text
    )
