"""Numbers, names and quotations in a model's feedback. Nothing of this machine passes through here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MAX_QUOTED = 300
MAX_SOURCE_LINE = 160

_PATH = re.compile(r"(?<![\w.<>/~])/[\w.+@-]+(?:/+[\w.+@-]+)*")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_SMALL_ADDRESS = 1 << 20
"""Addresses below this are null pointers with an offset or shared memory, and tell something."""

_TEMPLATE_OR_PARAMETERS = re.compile(r"[<(]")


def safe(text: str, limit: int = MAX_QUOTED) -> str:
    """What a tool or a candidate said, on one line, without paths and device addresses."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    line = _ADDRESS.sub(_address, _PATH.sub(_path, line))
    return line if len(line) <= limit else line[: limit - 4] + " ..."


def _path(match: re.Match[str]) -> str:
    last = match.group().rpartition("/")[2]
    return last if "." in last else "<path>"


def _address(match: re.Match[str]) -> str:
    return match.group() if int(match.group(), 16) < _SMALL_ADDRESS else "<address>"


def count(number: int, thing: str) -> str:
    """``1 finding``, ``12,000 findings``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def percent(share: float) -> str:
    """A share of 0..1 in percent, with enough digits that neither none nor all is claimed wrongly."""
    if share in (0.0, 1.0):
        return f"{share * 100:.0f}%"
    if 0 < share < 0.001:
        return f"{share * 100:.2g}%"
    if 0.999 < share < 1:
        return "more than 99.9%"
    return f"{share * 100:.1f}%"


def listed(items: Iterable[str], most: int = 4) -> str:
    """``a, b, c and 7 more``."""
    names = list(items)
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def short_name(kernel: str) -> str:
    """A kernel's own name, of a mangled or a demangled one: ``gemm`` of ``ns::gemm<4>(float*)``."""
    if kernel.startswith("_Z"):
        return safe(_last_identifier(kernel), 80) or "kernel"
    head = _TEMPLATE_OR_PARAMETERS.split(kernel.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    words = head.split()
    return safe(words[-1].rpartition("::")[2], 80) if words else "kernel"


def _last_identifier(mangled: str) -> str:
    """The last part of the (nested) name that an Itanium-mangled symbol begins with."""
    position = 3 if mangled.startswith("_ZN") else 2
    found = ""
    while length := re.compile(r"[0-9]{1,4}").match(mangled, position):
        position = length.end() + int(length.group())
        found = mangled[length.end() : position]
        if not mangled.startswith("_ZN"):
            break
    return found


def source_line(source: str, number: int) -> str:
    """One line of the candidate with its number, as it is quoted; empty for a line that it does not have."""
    lines = source.splitlines()
    if not 1 <= number <= len(lines):
        return ""
    text = lines[number - 1].expandtabs(4)
    return f"{number:>5} | {text if len(text) <= MAX_SOURCE_LINE else text[: MAX_SOURCE_LINE - 4] + ' ...'}".rstrip()


def excerpt(source: str, number: int, around: int = 0) -> str:
    """The line ``number`` of the candidate, marked, with ``around`` lines before and after it."""
    quoted = []
    for line in range(number - around, number + around + 1):
        if text := source_line(source, line):
            quoted.append((">" if line == number and around else " ") + text)
    return "\n".join(quoted)


def lines_with(source: str, *words: str) -> list[int]:
    """Numbers of the candidate's lines, outside comments of a line, that hold one of the words."""
    return [
        number
        for number, text in enumerate(source.splitlines(), 1)
        if any(word in text.partition("//")[0] for word in words)
    ]


def numbers(values: Sequence[int], most: int = 6) -> str:
    """``lines 3, 7, 12``."""
    return ("line " if len(values) == 1 else "lines ") + listed(map(str, values), most)


def milliseconds(value: float) -> str:
    """A time in ms with four significant digits."""
    return f"{value:.4g} ms"
