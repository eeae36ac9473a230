"""Line markers in a candidate's source (``# 1 "cuda.h" 1``, an extension of GNU C).

The preprocessor obeys them and passes them on, so that text after one seems to come from a header. The screen tells
own text from headers by those very markers, and therefore accepts none in a source. Finding them takes what the
language says of lines: spliced lines, comments and strings first, with raw strings exempt from splicing.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from ptxbench.toolchain.lexer import raw_string_end

# g++ also splices where blanks stand between the backslash and the end of the line.
_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")

# What every line marker has, wherever it stands. Hardly any source has it, and then nothing more need be read.
_SUSPECT = re.compile(r"(?:\#|%:)[ \t\r\f\v\0]*(?:/\*|\d)")

_TOKEN = r"""
      (?P<raw>(?:u8|[uUL])?R"[^()\\\s"]{0,16}\()
    | (?P<comment>//[^\n]*|/\*)
    | (?P<literal>"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?)
    | (?P<word>NAME|\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<newline>\n)
    | (?P<blank>[ \t\r\f\v\0\ufeff]+)
    | (?P<hash>\#|%:)
    | (?P<other>.)
"""
# Whether a character beyond ASCII belongs to a name depends on the compiler's version.
_NAMES = (r"[A-Za-z_$][A-Za-z0-9_$]*", r"[A-Za-z_$\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*")
_READINGS = tuple((re.compile(_TOKEN.replace("NAME", name), re.VERBOSE), re.compile(name)) for name in _NAMES)
_NO_SUFFIX = re.compile(r"(?!)")


def line_markers(source: str) -> list[int]:
    """Lines, counted from 1, of the source's directives that begin with a number, as line markers do."""
    # A name that touches a literal's end is its suffix (``""R"(" ...``), unless it is a macro's name. What is in doubt
    # is read both ways, and a marker in any reading counts.
    text, origins = _spliced(source)
    if not _SUSPECT.search(text):
        return []
    readings = [(token, suffix) for token, name in _READINGS for suffix in (name, _NO_SUFFIX)]
    found = {position for token, suffix in readings for position in _scan(source, text, origins, token, suffix)}
    return sorted({source.count("\n", 0, position) + 1 for position in found})


def _scan(source: str, text: str, origins: list[int], token: re.Pattern[str], suffix: re.Pattern[str]) -> Iterator[int]:
    """Positions in the source of the numbers that follow a directive's hash."""
    position = 0
    start_of_line, after_hash, in_directive = True, False, False
    while match := token.match(text, position):
        kind, position = match.lastgroup, match.end()
        if kind == "raw":
            position = bisect_left(origins, _raw_end(source, origins[match.start()], in_directive))
        elif match.group() == "/*":
            closed = text.find("*/", position)
            position = closed + 2 if closed >= 0 else len(text)
        if kind in ("raw", "literal") and (ending := suffix.match(text, position)):
            position = ending.end()
        if kind == "word" and after_hash and match.group()[0].isdigit():
            yield origins[match.start()]
        if kind in ("comment", "blank"):
            continue
        after_hash = kind == "hash" and start_of_line
        in_directive = (in_directive or after_hash) and kind != "newline"
        start_of_line = kind == "newline"


def _raw_end(source: str, start: int, in_directive: bool) -> int:
    """Where a raw string ends for the preprocessor: in a directive, with the line at the latest."""
    end = raw_string_end(source, start)
    newline = source.find("\n", start)
    return newline if in_directive and 0 <= newline < end else end


def _spliced(source: str) -> tuple[str, list[int]]:
    """The source with spliced lines joined, and for each of its characters the position in the source."""
    parts: list[str] = []
    origins: list[int] = []
    position = 0
    for match in _SPLICE.finditer(source):
        parts.append(source[position : match.start()])
        origins.extend(range(position, match.start()))
        position = match.end()
    parts.append(source[position:])
    origins.extend(range(position, len(source)))
    return "".join(parts), origins
