"""Whether a reply is a rationale: its form, its length, who speaks, and what it must not hold. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ptxbench.adapt.chat_marks import MARKS
from ptxbench.adapt.defaults import LEAST_TOKENS, MOST_TOKENS
from ptxbench.adapt.leaks import leaks_in
from ptxbench.agent.extraction import REASONING_MARK, without_reasoning
from ptxbench.packs import estimate_tokens
from ptxbench.records import Record, Reply

FaultKind = Literal["form", "person", "short", "long", "leak"]

_BLOCK = re.compile(r"<rationale>(.*?)</rationale>", re.DOTALL)
_TAG = re.compile(r"</?rationale>")
_FENCE = re.compile(r"`{3,}|~{3,}|<(?:pre|code)\b", re.IGNORECASE)
_CONTROL = re.compile(rf"{MARKS.pattern}|{REASONING_MARK.pattern}|</?s>|<[be]os>", re.IGNORECASE)
_HEADING = re.compile(r"^\s*#{1,6} ", re.MULTILINE)
_FIRST = re.compile(r"\b(?:I|I'm|I'll|I've|I'd|my|me|let me)\b")
_SECOND = re.compile(r"\b(?:you|your|yours)\b", re.IGNORECASE)


class Window(NamedTuple):
    """Length that a rationale may have, in estimated tokens (``ptxbench.packs.estimate_tokens``)."""

    least: int = LEAST_TOKENS
    most: int = MOST_TOKENS

    def within(self, room: int) -> Window:
        """The part of it that a record has room for."""
        return Window(self.least, min(self.most, room))


class Fault(Record):
    """Why a reply is no rationale."""

    kind: FaultKind
    message: str
    """For the teacher, who is asked again: what was expected, what was found."""


class Reading(NamedTuple):
    """A reply, read."""

    text: str
    """The rationale, also where it has faults; empty where there is none."""
    faults: tuple[Fault, ...]


def read_rationale(reply: Reply, window: Window, *, kernel: str, known: Sequence[str]) -> Reading:
    """The rationale of a reply, and everything that is wrong with it.

    ``kernel`` is the final source, ``known`` the texts that the student has before its eyes and may quote.
    """
    text, fault = _block(reply)
    if fault is not None:
        return Reading(text, (fault,))
    return Reading(text, tuple(_faults(text, window, kernel, known)))


def _block(reply: Reply) -> tuple[str, Fault | None]:
    wanted = "expected exactly one <rationale>...</rationale> block with plain prose"
    if reply.ended == "output_limit":
        return "", Fault(kind="form", message=f"{wanted}, found an answer that was cut at the output limit")
    said, _ = without_reasoning(reply.text)
    blocks, tags = _BLOCK.findall(said), len(_TAG.findall(said))
    if len(blocks) != 1 or tags != 2:
        found = "none" if not blocks else f"{tags} tags"
        return "", Fault(kind="form", message=f"{wanted}, found {found}")
    text = blocks[0].strip()
    if not text:
        return "", Fault(kind="form", message=f"{wanted}, found an empty one")
    return text, None


def _faults(text: str, window: Window, kernel: str, known: Sequence[str]) -> Iterator[Fault]:
    if _FENCE.search(text):
        yield Fault(kind="form", message="expected prose, found a fenced code block: describe the change in words")
    if mark := _CONTROL.search(text):
        yield Fault(kind="form", message=f"expected prose, found a mark of chat templates ({mark[0]})")
    if _HEADING.search(text):
        yield Fault(kind="form", message="expected prose in paragraphs, found headings")
    if not _FIRST.search(text):
        yield Fault(kind="person", message="expected the first person (I, my), found no such word")
    if found := _SECOND.search(text):
        yield Fault(kind="person", message=f"expected somebody who thinks aloud, found words to a reader ({found[0]})")
    length = estimate_tokens(text)
    if length < window.least:
        yield Fault(kind="short", message=f"expected at least {window.least} tokens, found about {length}")
    if length > window.most:
        yield Fault(
            kind="long",
            message=f"expected at most {window.most} tokens, found about {length}: write it again, shorter",
        )
    for leak in leaks_in(text, kernel=kernel, known=known):
        yield Fault(kind="leak", message=f"{_LEAKS[leak.kind]} ({leak.quote})" if leak.quote else _LEAKS[leak.kind])


_LEAKS = {
    "code": "it quotes code of the repaired kernel, which the engineer has not written yet",
    "marker": "it shows that the repaired kernel was given, or speaks of its task",
    "path": "it names a place of some machine or network",
    "credential": "it holds what looks like a credential",
}
