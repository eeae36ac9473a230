"""What every kind of outcome has to say, what it may read for that, and how much room each part has."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from ptxbench.cases import Case
from ptxbench.records import Build, Evidence, TurnRecord, Verdict

HEADLINE_CHARS = 300
FACTS_CHARS = 3500
ADVICE_CHARS = 1300
NEXT_CHARS = 700
MAX_CHARS = 6000
"""Of a whole feedback. The parts' budgets leave room for headings and line ends."""
ITEM_CHARS = 1000
"""Of one fact or one piece of advice, quoted lines included."""

_LEFT_OUT_CHARS = 40


class Parts(NamedTuple):
    """What one outcome has to say. An item may have several lines; the most important ones come first."""

    headline: str
    facts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()


Locate = Callable[[str, int], tuple[int, ...]]
"""Lines of the candidate for a kernel (as a tool names it) and a byte offset in its code, innermost first."""


class Turn(NamedTuple):
    """One judged turn, as the outcomes' modules read it."""

    case: Case
    record: TurnRecord
    source: str
    """Empty where the answer held no kernel."""
    locate: Locate

    @property
    def verdict(self) -> Verdict:
        """The judge's answer."""
        return self.record.verdict

    @property
    def build(self) -> Build:
        """The build. Only outcomes that come after building ask."""
        assert self.record.build is not None
        return self.record.build

    @property
    def evidence(self) -> Evidence:
        """The measurements. Only outcomes that come after running ask."""
        assert self.record.evidence is not None
        return self.record.evidence


def bounded(text: str, limit: int) -> str:
    """``text`` within ``limit`` characters; a longer one loses its end."""
    return text if len(text) <= limit else text[: limit - 4].rstrip() + " ..."


def bullets(items: Iterable[str], limit: int) -> str:
    """A list within ``limit`` characters: whole items from the first on, and how many are left out."""
    lines: list[str] = []
    room, entries = limit - _LEFT_OUT_CHARS, list(items)
    for position, item in enumerate(entries):
        line = "- " + bounded(item, ITEM_CHARS).replace("\n", "\n  ")
        if room < len(line) + 1:
            lines.append(f"- ({len(entries) - position} more left out)")
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join(lines)
