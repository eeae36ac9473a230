"""Texts of others made fit for terminals, pages and files."""

from __future__ import annotations

import unicodedata

_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of control and formatting characters, also those that turn the direction of writing, of halves of
surrogate pairs, and of line and paragraph separators."""


def visible(text: str) -> str:
    """``text`` as one line, with what cannot be seen spelled out: ``\\u001b``. What comes out stays as it is."""
    return _spelled_out(text, kept="")


def plain(text: str) -> str:
    """The same of a message, which keeps its tabs and line ends, made ``whole``."""
    return _spelled_out(whole(text), kept="\t\n")


def whole(text: str) -> str:
    """``text`` with what no file can hold replaced: JSON can name halves of a surrogate pair."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _spelled_out(text: str, kept: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        f"\\u{ord(character):04x}"
        if unicodedata.category(character) in _UNSEEN and character not in kept
        else character
        for character in text
    )
