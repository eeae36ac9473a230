"""The compiler's messages, read from the log of a build: nvcc's, the host compiler's, ptxas's, the linker's."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ptxbench.agent.feedback.wording import excerpt, lines_with, safe

MESSAGE_CHARS = 400
QUOTED_LINES = 2
"""Lines of the source before and after the one that a message points at; also how many are quoted for a PTX message."""

Kind = Literal["error", "warning", "remark"]

# kernel.cu(12): error: identifier "x" is undefined         nvcc's front ends
# kernel.cu:12:5: fatal error: x.h: No such file            g++
_AT_LINE = re.compile(
    r"^(?P<file>[^\s:(][^:(\n]*?)(?:\((?P<line>\d+)\)|:(?P<gnu>\d+)(?::\d+)?):\s*"
    r"(?:catastrophic |fatal |internal )?(?P<kind>error|warning|note|remark)\s*(?:#[\w-]+)?:?\s*(?P<text>.*)$"
)
# ptxas kernel.ptx, line 32; error   : Arguments mismatch for instruction 'mma'
_PTXAS = re.compile(
    r"^ptxas (?:\S+, line \d+; )?(?P<kind>error|fatal|warning|info)\s*: (?P<text>.*)$",
)
_NUMBERED = re.compile(r"^\(C\d+\)")
_QUOTED = re.compile(r"'([^']+)'")
_OTHER_ERROR = re.compile(
    r"(?:undefined reference|multiple definition|error: |exports no function|crashed|stopped after)"
)
_COUNTED = re.compile(r"^\d+ errors? detected|Ptx assembly aborted|ld returned \d+ exit status")
_UNIMPORTANT = re.compile(r"declared but never referenced|set but never used|-diag-suppress")


class Message(NamedTuple):
    """One message. ``line`` is of the candidate; None where it names no line of it."""

    kind: Kind
    text: str
    line: int | None = None

    def quoted(self, source: str, around: int = QUOTED_LINES) -> str:
        """The message with the lines of the source that it is about."""
        if self.line is not None:
            lines = excerpt(source, self.line, around)
            return f"{self.kind} at line {self.line}: {self.text}" + (f"\n{lines}" if lines else "")
        found = _lines_about(self.text, source)
        lines = "\n".join(excerpt(source, line) for line in found[:QUOTED_LINES])
        more = f"\n ... and {len(found) - QUOTED_LINES} more lines with it" if len(found) > QUOTED_LINES else ""
        return f"{self.kind}: {self.text}" + (f"\n{lines}{more}" if lines else "")


def read_messages(log: str, source_name: str = "kernel.cu") -> list[Message]:
    """The messages of a log, in order, equal ones once. Text of another shape is passed over."""
    found: dict[Message, None] = {}
    for line in log.splitlines():
        message = _at_line(line, source_name) or _of_ptxas(line) or _other(line)
        if message is not None:
            found.setdefault(message)
    return list(found)


def _at_line(line: str, source_name: str) -> Message | None:
    match = _AT_LINE.match(line)
    if match is None or match["kind"] == "note" or _UNIMPORTANT.search(match["text"]):
        return None
    own = match["file"] == source_name
    kind: Kind = "error" if match["kind"] == "error" else "warning"
    text = safe(match["text"], MESSAGE_CHARS)
    number = int(match["line"] or match["gnu"])
    return Message(kind, text, number) if own else Message(kind, f"{safe(match['file'])}({number}): {text}")


def _of_ptxas(line: str) -> Message | None:
    match = _PTXAS.match(line)
    if match is None or _COUNTED.search(match["text"]):
        return None
    if match["kind"] == "info" and not _NUMBERED.match(match["text"]):
        return None
    kinds: dict[str, Kind] = {"error": "error", "fatal": "error", "warning": "warning", "info": "remark"}
    return Message(kinds[match["kind"]], safe(f"ptxas: {match['text']}", MESSAGE_CHARS))


def _other(line: str) -> Message | None:
    if _COUNTED.search(line) or not _OTHER_ERROR.search(line) or line.startswith(" "):
        return None
    return Message("error", safe(line, MESSAGE_CHARS))


def _lines_about(text: str, source: str) -> list[int]:
    """Lines of the candidate with the instruction or name that a PTX message quotes."""
    for name in _QUOTED.findall(text):
        if len(name) >= 3 and (found := lines_with(source, name.strip("."))):
            return found
    return []
