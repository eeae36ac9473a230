"""What the preprocessor made of a candidate: its own tokens, apart from those of headers, and the headers it read.

Own text is told from header text by the depth of inclusion in the preprocessor's line markers, never by file name,
since ``#line`` can set any name. Markers that the source itself holds are another matter: see directives.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.toolchain.lexer import Kind, Token, literal_end, raw_string_end, tokenize

SOURCE_NAME = "kernel.cu"
FORCED_HEADER = "cuda_runtime.h"
"""What nvcc includes before the first line of every source."""

_MARKER = re.compile(r'^# (\d+) "([^"\n]*)" ([12])(?: [34])*$', re.MULTILINE)
_MISSING = re.compile(r"^\S+?:\d+:\d+: fatal error: (.+): No such file or directory$", re.MULTILINE)


class Inclusion(NamedTuple):
    """A header that was read: ``depth`` 1 is included by the candidate itself, at ``line``; deeper ones by headers."""

    path: str
    depth: int
    line: int


class Translation(NamedTuple):
    """One preprocessed candidate."""

    tokens: tuple[Token, ...]
    inclusions: tuple[Inclusion, ...]


def read_translation(text: str) -> Translation:
    """Splits preprocessed text.

    Raises InfrastructureError("compiler_crashed") when the text is not what g++ writes for nvcc.
    """
    start = _main_start(text)
    if start is None:
        raise InfrastructureError(
            "compiler_crashed",
            f"expected preprocessed text with {FORCED_HEADER} in front of {SOURCE_NAME}; found {text[:80]!r}. "
            "Use g++ as the host compiler.",
        )
    tokens: list[Token] = []
    inclusions: list[Inclusion] = []
    depth, outer, chunk, line = 0, 0, start, 1
    for match in _MARKER.finditer(text, start):
        if match.start() < chunk:
            continue
        if depth == 0:
            own = tokenize(text[chunk : match.start()], line)
            tokens += own
            if own and own[-1].kind is Kind.OPEN_RAW:  # the "marker" is a line of a raw string
                opened = tokens.pop()
                begin = match.start() - len(opened.text)
                chunk = literal_end(text, raw_string_end(text, begin))
                tokens.append(Token(Kind.STRING, text[begin:chunk], opened.line))
                line = opened.line + text.count("\n", begin, chunk)
                continue
        next_line = int(match[1])
        if match[3] == "1":
            depth += 1
            inclusions.append(Inclusion(match[2], depth, 0))
            outer = len(inclusions) - 1 if depth == 1 else outer
        elif depth:
            depth -= 1
            if depth == 0:  # the line after the directive
                inclusions[outer] = inclusions[outer]._replace(line=next_line - 1)
        chunk, line = match.end() + 1, next_line
    if depth == 0:
        tokens += tokenize(text[chunk:], line)
    return Translation(tuple(tokens), tuple(inclusions))


def missing_header(output: str) -> str | None:
    """The header that the preprocessor could not find, as it was spelled."""
    match = _MISSING.search(output)
    return match[1] if match else None


def _main_start(text: str) -> int | None:
    """Where the candidate's text begins: where the header that nvcc forces in front of it ends."""
    depth, forced = 0, False
    for match in _MARKER.finditer(text):
        depth += 1 if match[3] == "1" else -1
        forced = forced or match[2].endswith("/" + FORCED_HEADER)
        if forced and depth == 0:
            return match.end() + 1
    return None
