"""Marks of chat templates: what would not be read as text in a training record. Pure."""

from __future__ import annotations

import re

MARKS = re.compile(
    r"<[|\uff5c][^\n|\uff5c>]{1,40}[|\uff5c]>|</?think(?:ing)?>|<(?:start|end)_of_turn>|\[/?INST\]", re.IGNORECASE
)
"""Begin and end of turns and of reasoning, in the forms that no CUDA source has by chance."""


def mark_in(*texts: str) -> str:
    """The first mark in some texts, or nothing."""
    return next((found[0] for text in texts if (found := MARKS.search(text))), "")
