"""Headers of a pack (``templates/*.cuh``): what they define, how a prompt shows them, what a function depends on."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from ptxbench.trace import FileError
from ptxbench.trace.document import read_text

HEADER_SUFFIX = ".cuh"

_INCLUDE = re.compile(r'#\s*include\s+([<"])([^>"]+)[>"]')
_DEFINE = re.compile(r"#\s*define\s+(\w+)")
_NAMED = re.compile(
    r"\b(?:struct|enum class|enum|union|class)\s+(\w+)|\busing\s+(\w+)\s*=|\bconstexpr\s+\w+\s+(\w+)\s*="
)
_FUNCTION = re.compile(r"(?:__forceinline__|\binline|\bstatic)\b(?![^\n;{(]*=)[^;{}()]*?\b(?:operator\W+|(\w+))\s*\(")
_INVOCATION = re.compile(r"^([A-Z][A-Z0-9_]*)\s*\(")
_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_PASTED = re.compile(r"([A-Za-z_]\w*)\s*##")
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\s*(volatile|__volatile__)?\s*\(")


class Definition(NamedTuple):
    """One construct at the top level of a header: a function, type, constant, macro, or the use of a macro."""

    names: tuple[str, ...]
    """What it defines. The use of a macro has the macro's name."""
    functions: tuple[str, ...]
    """The functions among them, those of a macro's body included. A type with methods counts as one function."""
    comment: str
    """The comment right above it."""
    code: str
    """Without comments, and without the backslashes of a macro."""
    line: int
    joined: bool
    """No blank line separates it from the construct before, whose comment then speaks of both."""


class Header(NamedTuple):
    """A header, read."""

    path: Path
    text: str
    system_includes: tuple[str, ...]
    sibling_includes: tuple[str, ...]
    definitions: tuple[Definition, ...]

    @property
    def functions(self) -> tuple[str, ...]:
        """Names of the functions, each once, in order."""
        return tuple(dict.fromkeys(name for found in self.definitions for name in found.functions))


class Asm(NamedTuple):
    """One inline assembly statement: all of its text between the parentheses."""

    volatile: bool
    text: str

    @property
    def clobbers_memory(self) -> bool:
        """Whether the compiler knows that it reads or writes memory."""
        return '"memory"' in self.text


def read_header(path: Path) -> Header:
    """Raises InputError: unreadable, or a construct that never ends."""
    text = read_text(path)
    system: list[str] = []
    sibling: list[str] = []
    for mark, name in _INCLUDE.findall(text):
        (system if mark == "<" else sibling).append(name)
    return Header(path, text, tuple(system), tuple(sibling), tuple(_definitions(path, text)))


def render_header(header: Header, included: set[str]) -> str:
    """A header as a prompt shows it: a heading and one block, without guards and includes of its siblings.

    A system header is named by the first block only: ``included`` holds those that were named, and grows.
    """
    includes = [name for name in header.system_includes if name not in included]
    included.update(includes)
    lines = [line for line in header.text.splitlines() if not re.match(r"\s*#\s*(?:pragma\s+once|include)\b", line)]
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    head = "".join(f"#include <{name}>\n" for name in includes)
    return f"### {header.path.name}\n\n```cuda\n{head}{chr(10) if head else ''}{body}\n```"


def as_one_file(headers: Iterable[Header]) -> str:
    """All headers as one source, in order."""
    texts = (
        re.sub(r'^\s*#\s*(?:pragma\s+once|include\s+").*$', "", header.text, flags=re.MULTILINE) for header in headers
    )
    return "".join(texts)


def asm_statements(code: str) -> tuple[Asm, ...]:
    """The inline assembly of some code without comments."""
    return tuple(Asm(bool(found[1]), _balanced(code, found.end())) for found in _ASM.finditer(code))


def function_code(definitions: Iterable[Definition], name: str) -> str:
    """All that defines a function, overloads and the uses of macros that define it included."""
    known = tuple(definitions)
    own = [found for found in known if name in found.functions]
    macros = {macro for found in own if found.code.startswith("#") for macro in found.names}
    return "\n".join(
        found.code for found in known if found in own or (not found.code.startswith("#") and macros & set(found.names))
    )


def closure_code(definitions: Iterable[Definition], name: str) -> str:
    """A function's code and that of all of the pack that it uses, without comments and layout."""
    known = tuple(definitions)
    by_name: dict[str, list[int]] = {}
    for index, found in enumerate(known):
        for defined in (*found.names, *found.functions):
            by_name.setdefault(defined, []).append(index)
    seen: set[int] = set()
    open_names = [name]
    while open_names:
        for index in by_name.get(open_names.pop(), ()):
            if index not in seen:
                seen.add(index)
                open_names.extend(_used(known[index].code, by_name.keys()))
    return "\n".join(" ".join(known[index].code.split()) for index in sorted(seen))


def _used(code: str, names: Collection[str]) -> set[str]:
    """Names that some code uses; all that begin so where a macro pastes the rest on."""
    pasted = tuple(_PASTED.findall(code))
    return {name for name in names if name.startswith(pasted)} | (set(_WORD.findall(code)) & set(names))


def function_sha256(definitions: Iterable[Definition], name: str) -> str:
    """Identity of a function: a hash of its ``closure_code``."""
    return hashlib.sha256(closure_code(definitions, name).encode()).hexdigest()


def strip_comments(text: str) -> str:
    """C++ without its comments; strings are left alone."""
    return _COMMENT.sub(lambda found: found[1] or "", text)


def _definitions(path: Path, text: str) -> Iterable[Definition]:
    lines = text.splitlines()
    comment: list[str] = []
    at, joined = 0, False
    while at < len(lines):
        line = lines[at].strip()
        if not line:
            comment, joined = [], False
        elif line.startswith("//"):
            comment.append(line.removeprefix("//").strip())
            joined = False
        else:
            end = _end(path, lines, at)
            code = strip_comments("\n".join(lines[at:end])).strip()
            found = _definition(code, " ".join(comment), at + 1, joined)
            if found is not None:
                yield found
            comment, joined, at = [], found is not None, end
            continue
        at += 1


def _end(path: Path, lines: list[str], start: int) -> int:
    """The line after the construct that begins at ``start``."""
    if lines[start].lstrip().startswith("#"):
        end = start
        while end < len(lines) and lines[end].rstrip().endswith("\\"):
            end += 1
        return end + 1
    depth = 0
    for end in range(start, len(lines)):
        code = re.sub(r'"(?:\\.|[^"\\])*"|//.*', "", lines[end]).rstrip()
        depth += sum(code.count(mark) for mark in "({[") - sum(code.count(mark) for mark in ")}]")
        if depth <= 0 and (code.endswith((";", "}")) or _INVOCATION.match(lines[start])):
            return end + 1
    raise FileError(path, start + 1, "", "a construct that ends", "none: its brackets are not balanced")


def _definition(code: str, comment: str, line: int, joined: bool) -> Definition | None:
    if code.startswith("#"):
        macro = _DEFINE.match(code)
        body = code.replace("\\\n", "\n")
        return Definition((macro[1],), _functions(body), comment, body, line, joined) if macro else None
    use = _INVOCATION.match(code)
    if use:
        return Definition((use[1],), (), comment, code, line, joined)
    names = tuple(name for match in _NAMED.finditer(code) for name in match.groups() if name)[:1]
    if re.match(r"(?:template\s*<[^{;]*>\s*)?(?:struct|class|enum|union)\b", code):
        functions = names if _FUNCTION.search(code) else ()
    else:
        functions = _functions(code)
    return Definition(functions or names, functions, comment, code, line, joined)


def _functions(code: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in _FUNCTION.findall(code) if name))


def _balanced(code: str, start: int) -> str:
    depth, at, quoted = 1, start, False
    while at < len(code) and depth:
        mark = code[at]
        if mark == "\\" and quoted:
            at += 1
        elif mark == '"':
            quoted = not quoted
        elif not quoted:
            depth += (mark == "(") - (mark == ")")
        at += 1
    return code[start : at - 1]
