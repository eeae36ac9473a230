"""Inline assembly with its operands written where PTX reads them: what a wrong order, place or width would change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ptxbench.packs.source import Definition, asm_statements

_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_CONSTRAINT = re.compile(r'"[=+]?[rlfhn]"\s*\(')


def written_out(definitions: Iterable[Definition]) -> Iterator[tuple[str, str]]:
    """Each function that holds assembly itself, macros aside, and that assembly with its operands."""
    for found in definitions:
        if found.functions and not found.code.startswith("#"):
            for statement in asm_statements(found.code):
                yield found.functions[0], _substituted(statement.text)


def _substituted(text: str) -> str:
    start = re.match(r'\s*(?:"(?:\\.|[^"\\])*"\s*)+', text)
    if start is None:
        raise ValueError(f"no assembly begins {text!r}")
    code = "".join(_STRING.findall(start[0])).replace("\\n", "\n")
    operands = [_balanced(text, found.end()) for found in _CONSTRAINT.finditer(text, start.end())]
    code = re.sub(r"%(\d+)", lambda found: operands[int(found[1])], code)
    return " ".join(code.replace("%%", "%").split())


def _balanced(text: str, start: int) -> str:
    depth, at = 1, start
    while depth:
        depth += (text[at] == "(") - (text[at] == ")")
        at += 1
    return text[start : at - 1]
