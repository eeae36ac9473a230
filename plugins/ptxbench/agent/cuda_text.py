"""What can be said of a CUDA source without compiling it: whether it is a whole file that exports a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ptxbench.toolchain.lexer import Kind, Token, tokenize

EXPORT_MACRO = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"
EXPORT_SYMBOL = "__tvm_ffi_run"
"""What the macro defines for ``run``; a source may also define it by hand."""

# What decides where comments and raw strings begin. Names and numbers are there to be passed over whole: the R of
# ``fooR"(`` opens no raw string, the ' of 1'000 no character.
_NEXT = re.compile(
    r"""
      (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\()
    | (?P<literal>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?)
    | (?P<word>[A-Za-z_$][\w$]*|\.?\d(?:[eEpP][+-]|'\w|[\w.])*)
    | (?P<line>//.*)
    | (?P<block>/\*)
    """,
    re.VERBOSE,
)

_ELLIPSIS = r"(?:\.{3,}|…)"
_LEFT_OUT = (
    r"(?:unchanged|omitted|elided|for\s+brevity|(?:as|same\s+as)\s+(?:before|above|previous\w*|earlier)\W*$"
    r"|(?:existing|previous|remaining|original|other|your|rest\s+of(?:\s+the)?|remainder\s+of(?:\s+the)?)"
    r"\s+(?:code|file|kernels?|helpers?|functions?|implementation|program|includes?))"
)
_ELIDED = re.compile(
    rf"""^\s*(?:
        {_ELLIPSIS}\s*$
      | (?://+|/\*+)\s*[\[({{<*-]*\s*{_ELLIPSIS}.*\b{_LEFT_OUT}
      | (?://+|/\*+)\s*[\[({{<*-]*\s*(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the\s+)?
        (?:code|file|program|implementation|source|kernel)\b.{{0,40}}\b(?:unchanged|same|identical|as\s+before|omitted)\b
    )""",
    re.VERBOSE | re.IGNORECASE,
)


class CudaText(NamedTuple):
    """Facts about a source."""

    exports: tuple[str, ...]
    """Names that it exports through TVM-FFI."""
    exports_run: bool
    kernels: bool
    """Whether it has device code that can be launched (``__global__``)."""
    open_braces: int
    """Braces left open at the end; negative where one is closed that was never opened."""
    open_text: bool
    """Whether it ends inside a comment or a raw string."""
    elided: str
    """A line that stands for code left out, or nothing."""

    @property
    def whole(self) -> bool:
        """Whether it looks like a file from its first line to its last."""
        return self.exports_run and self.kernels and self.open_braces == 0 and not self.open_text and not self.elided


def advance(state: str, line: str) -> tuple[str, str]:
    """State after a line, and the line without comments.

    A state is the text that ends what the line is inside of: nothing in plain code, ``*/`` in a comment,
    ``)delimiter"`` in a raw string.
    """
    code: list[str] = []
    position = 0
    spliced = "\\" if line.rstrip().endswith("\\") else ""  # kept where it stands in a comment, since macros need it
    while True:
        if state:
            end = line.find(state, position)
            stop = len(line) if end < 0 else end + len(state)
            code.append(" " if state == "*/" else line[position:stop])
            if end < 0:
                return state, "".join((*code, spliced if state == "*/" else ""))
            state, position = "", stop
        match = _NEXT.search(line, position)
        if match is None:
            code.append(line[position:])
            return "", "".join(code)
        code.append(line[position : match.start()])
        position = match.end()
        if match.lastgroup == "line":
            return "", "".join((*code, spliced))
        if match.lastgroup == "block":
            state = "*/"
            continue
        code.append(match.group())
        if match["raw"]:
            state = f'){match["delimiter"]}"'


def examine(source: str) -> CudaText:
    """Facts about ``source``. Total: every text has some."""
    state = elided = ""
    lines: list[str] = []
    for line in source.split("\n"):
        if not elided and not state and _ELIDED.match(line):
            elided = line.strip()
        state, code = advance(state, line)
        lines.append(code)
    tokens = tokenize("\n".join(lines))
    exports = tuple(dict.fromkeys(name for name, _ in _exports(tokens)))
    return CudaText(
        exports=exports,
        exports_run="run" in exports or _exported_by_macro(lines),
        kernels=any(token.text == "__global__" and token.kind is Kind.NAME for token in tokens),
        open_braces=_open_braces(tokens, _directive_lines(lines)),
        open_text=state != "",
        elided=elided,
    )


def export_end(source: str) -> int | None:
    """Index of the line on which the last export ends; None without one."""
    state, lines = "", []
    for line in source.split("\n"):
        state, code = advance(state, line)
        lines.append(code)
    tokens = tokenize("\n".join(lines))
    ends = [closing for _, closing in _exports(tokens)]
    return tokens[ends[-1]].line - 1 if ends else None


def _exports(tokens: Sequence[Token]) -> Iterator[tuple[str, int]]:
    """Exported names, each with the index of the parenthesis that ends its export."""
    closing = _pairs(tokens)
    for index, token in enumerate(tokens):
        if token.kind is not Kind.NAME or token.text not in (EXPORT_MACRO, EXPORT_SYMBOL) or index + 1 not in closing:
            continue
        if token.text == EXPORT_SYMBOL:
            yield "run", closing[index + 1]
        elif tokens[index + 2].kind is Kind.NAME:
            yield tokens[index + 2].text, closing[index + 1]


def _pairs(tokens: Sequence[Token]) -> dict[int, int]:
    """Each parenthesis that is opened and closed -> the one that closes it."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind is Kind.PUNCT and token.text == "(":
            opened.append(index)
        elif token.kind is Kind.PUNCT and token.text == ")" and opened:
            pairs[opened.pop()] = index
    return pairs


def _directive_lines(lines: Sequence[str]) -> set[int]:
    """Lines, counted from 1, of preprocessor directives with their continuations."""
    found: set[int] = set()
    continued = False
    for number, line in enumerate(lines, start=1):
        if continued or line.lstrip().startswith("#"):
            found.add(number)
            continued = line.rstrip().endswith("\\")
    return found


def _exported_by_macro(lines: Sequence[str]) -> bool:
    """Whether a macro of the source's own wraps the export: what it is called with only the preprocessor knows."""
    directives = _directive_lines(lines)
    return any(number in directives and EXPORT_MACRO in line for number, line in enumerate(lines, start=1))


def _open_braces(tokens: Sequence[Token], directives: set[int]) -> int:
    """Depth at the end. Of the branches of ``#if`` the deepest counts; braces in macros are not the file's."""
    depth = 0
    branches: list[tuple[int, int]] = []  # depth before the #if, and the deepest end of its branches so far
    for index, token in enumerate(tokens):
        if token.line in directives:
            first = token.text == "#" and (index == 0 or tokens[index - 1].line != token.line)
            word = tokens[index + 1].text if first and index + 1 < len(tokens) else ""
            if word in ("if", "ifdef", "ifndef"):
                branches.append((depth, -1))
            elif word in ("else", "elif") and branches:
                before, deepest = branches.pop()
                branches.append((before, max(deepest, depth)))
                depth = before
            elif word == "endif" and branches:
                depth = max(branches.pop()[1], depth)
        elif token.kind is Kind.PUNCT:
            depth += (token.text == "{") - (token.text == "}")
            if depth < 0:
                return depth
    return depth
