"""Fenced code blocks of an answer, as language models really write them."""

from __future__ import annotations

import re
from typing import NamedTuple

from ptxbench.agent.cuda_text import advance

_FENCE = re.compile(
    r"(?P<prefix>[ \t]*(?:>[ \t]*)*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*?)[ \t]*"
)
_QUOTE = re.compile(r"[ \t]*>[ \t]?")
_TAG = re.compile(r"[\w+#]+(?:-[\w+]+)*")

CUDA_TAGS = frozenset(
    {"", "cuda", "cu", "cuh", "c++", "cpp", "cxx", "cc", "c", "h", "hpp", "cuda-cpp", "cuda-c++", "cudacpp"}
)
"""Tags under which CUDA sources are sent, and no tag at all."""

_LOOKAHEAD = 400
"""Lines within which a comment must end whose text holds a fence; else the fence is one."""


class Block(NamedTuple):
    """One fenced block."""

    tag: str
    """The language it is marked as, in lower case; empty where it is not."""
    content: str
    """Its lines, each ended by ``\\n``, without the fence's indentation."""
    closed: bool


class Answer(NamedTuple):
    """An answer taken apart."""

    blocks: tuple[Block, ...]
    outside: str
    """The lines that are in no block."""


def parse(text: str) -> Answer:
    """Blocks of ``text``, whose lines end in ``\\n``. A block that is never closed goes to the end of the text.

    A block also ends where another is opened with a language, since no source has such a line; except in a comment or
    raw string of a CUDA source.
    """
    lines = text.split("\n")
    blocks: list[Block] = []
    outside: list[str] = []
    position = 0
    while position < len(lines):
        opening = _fence(lines[position])
        if opening is None:
            outside.append(lines[position])
            position += 1
            continue
        end, closed = _end(lines, position + 1, opening)
        content = "".join(f"{_unindented(line, opening)}\n" for line in lines[position + 1 : end])
        if not closed and end == len(lines):  # the text's own last line end is not part of it
            content = content[:-1]
        blocks.append(Block(_tag(opening["info"]), content, closed))
        # What closes a block by opening the next one is read again.
        position = end + 1 if end < len(lines) and _closes(lines[end], opening) else end
    return Answer(tuple(blocks), "\n".join(outside))


def _fence(line: str) -> re.Match[str] | None:
    match = _FENCE.fullmatch(line)
    if match is None or (match["mark"][0] == "`" and "`" in match["info"]):
        return None
    return match


def _closes(line: str, opening: re.Match[str]) -> bool:
    match = _fence(line)
    return match is not None and not match["info"] and match["mark"].startswith(opening["mark"])


def _end(lines: list[str], start: int, opening: re.Match[str]) -> tuple[int, bool]:
    """Index of the line that ends the block whose content begins at ``start``, and whether it is closed there."""
    lexed = _tag(opening["info"]) in CUDA_TAGS
    state = ""
    doubtful: int | None = None  # the first fence inside a comment or raw string that has not ended yet
    for index in range(start, len(lines)):
        line = _unindented(lines[index], opening)
        match = _fence(lines[index])
        if match is not None and match["mark"].startswith(opening["mark"]):
            if not state:
                return index, True
            if match["info"] and doubtful is not None:
                break
            doubtful = index if doubtful is None else doubtful
        elif lexed:
            state, _ = advance(state, line)
            doubtful = doubtful if state else None
        if doubtful is not None and index - doubtful > _LOOKAHEAD:
            break
    return (len(lines), False) if doubtful is None else (doubtful, True)


def _unindented(line: str, opening: re.Match[str]) -> str:
    """A line of a block without what its list item or quotation puts before it."""
    prefix = opening["prefix"]
    if ">" in prefix:
        for _ in range(prefix.count(">")):
            line = _QUOTE.sub("", line, count=1) if _QUOTE.match(line) else line
        return line
    if line.startswith(prefix):
        return line[len(prefix) :]
    width = 0
    while width < min(len(prefix), len(line)) and line[width] in " \t":
        width += 1
    return line[width:]


def _tag(info: str) -> str:
    match = _TAG.search(info.lower())
    return match.group() if match else ""
