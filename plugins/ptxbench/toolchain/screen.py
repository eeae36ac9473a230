"""The screen (PROTOCOL 4.1): what a candidate includes, says and links that would let other code do its work.

It reads what the preprocessor made of the source, so that comments never count and macros hide nothing, and the
object that the compiler wrote, so that what is called counts rather than what is mentioned. Each finding names its
rule; docs/toolchain.md lists them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ptxbench.records.build import Finding
from ptxbench.toolchain import assembly, fatbin, rules
from ptxbench.toolchain.directives import line_markers
from ptxbench.toolchain.elf import EM_CUDA, Elf, ElfError
from ptxbench.toolchain.lexer import Kind, Token
from ptxbench.toolchain.rules import ScreenRule
from ptxbench.toolchain.sass import function_names
from ptxbench.toolchain.translation import SOURCE_NAME, Inclusion, Translation

MAX_EXCERPT = 200
"""Characters of a source line that a finding quotes."""

_SONAME = re.compile(r"[\w./+-]*\.so(?:\.\d+)*")
_DRIVER_NAME = re.compile(r"cu[A-Z]\w+")
_MAX_PARAMETER_TOKENS = 4096
_CUBIN_MAGIC = b"\x7fELF\x02\x01"
_MACHINE_OFFSET = 18


class _Hit(NamedTuple):
    rule: ScreenRule
    message: str
    line: int


class HeaderFolders:
    """The folders that a candidate's headers may come from.

    The build folder is not one of them: only the source lies there, and what it includes from itself would pass for
    the text of a header.
    """

    def __init__(self, build_folder: Path, search_dirs: Iterable[Path]) -> None:
        self._build_folder = build_folder
        # Longest first: a header's path is given relative to the closest folder.
        self._roots = sorted({os.path.realpath(build_folder / folder) for folder in search_dirs}, key=len, reverse=True)
        self._resolved: dict[str, str] = {}

    def relative(self, path: str) -> str | None:
        """``path`` of a line marker relative to its search folder; None when it lies outside all of them."""
        folder, name = os.path.split(path)
        if folder not in self._resolved:  # hundreds of headers share a few folders
            self._resolved[folder] = os.path.realpath(self._build_folder / folder)
        real = os.path.join(self._resolved[folder], name)
        return next((real[len(root) + 1 :] for root in self._roots if real.startswith(root + os.sep)), None)


def screen_source(source: str) -> tuple[Finding, ...]:
    """Findings in the source as it was written: line markers, with which text could pass for a header's."""
    message = "pretends that what follows comes from another file"
    return _findings((_Hit(ScreenRule.LINE_DIRECTIVE, message, line) for line in line_markers(source)), source)


def screen_translation(translation: Translation, folders: HeaderFolders, source: str) -> tuple[Finding, ...]:
    """Findings in one preprocessed candidate: its inclusions and its own tokens."""
    hits = [*_inclusions(translation.inclusions, folders), *_tokens(translation.tokens)]
    return _findings(hits, source)


def screen_object(content: bytes) -> tuple[Finding, ...]:
    """Findings in the relocatable object: functions that it calls, device code hidden in its data."""
    try:
        elf = Elf(content)
        called = sorted({symbol.name for symbol in elf.symbols() if not symbol.defined})
        hiding = [s.name for s in elf.sections if s.name != fatbin.SECTION and _holds_device_code(elf.content(s))]
        planted = sorted({symbol.name for symbol in elf.symbols() if symbol.is_data and elf.is_code(symbol)})
    except ElfError as error:
        return (_unreadable(error),)
    findings = [
        Finding(rule=verdict[0], message=verdict[1]) for name in called if (verdict := _undefined(name)) is not None
    ]
    findings += [
        Finding(rule=ScreenRule.EMBEDDED_DEVICE_CODE, message=f"section {name} holds device code") for name in hiding
    ]
    findings += [
        Finding(
            rule=ScreenRule.PROCESS_CREATION,
            message=f"the data {name} lies in a section of code, and could be any code",
        )
        for name in planted
    ]
    return unique(findings)


def screen_shared_object(content: bytes, assembled: bytes) -> tuple[Finding, ...]:
    """Findings in the linked object: libraries it needs, device code other than ``assembled``, what ptxas wrote."""
    try:
        elf = Elf(content)
        needed, section = elf.needed(), elf.section(fatbin.SECTION)
        embedded = fatbin.entries(elf.content(section)) if section else ()
        kernels = function_names(assembled)
    except (ElfError, fatbin.FatbinError) as error:
        return (_unreadable(error),)
    findings = [
        Finding(rule=ScreenRule.LIBRARY_SYMBOL, message=f"the built object needs the library {name}")
        for name in needed
        if not rules.ALLOWED_NEEDED.fullmatch(name)
    ]
    if embedded != (fatbin.Entry(True, assembled),):  # text would be compiled when the object is loaded
        message = "the built object holds device code that was not compiled from the source"
        findings.append(Finding(rule=ScreenRule.EMBEDDED_DEVICE_CODE, message=message))
    for name in kernels:
        library = rules.library_of_kernel(name)
        if library is not None:
            findings.append(Finding(rule=ScreenRule.LIBRARY_SYMBOL, message=f"the kernel {name} belongs to {library}"))
    return unique(findings)


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without repetition, in order; the host and the device half of a source give the same ones."""
    return tuple({finding.model_dump_json(): finding for finding in findings}.values())


def _findings(hits: Iterable[_Hit], source: str) -> tuple[Finding, ...]:
    lines = source.split("\n")
    return unique(
        Finding(
            rule=hit.rule,
            message=hit.message,
            file=SOURCE_NAME,
            line=hit.line,
            excerpt=lines[hit.line - 1].strip()[:MAX_EXCERPT] if 0 < hit.line <= len(lines) else "",
        )
        for hit in hits
    )


def _inclusions(inclusions: Sequence[Inclusion], folders: HeaderFolders) -> Iterator[_Hit]:
    line = 0
    for inclusion in inclusions:
        direct = inclusion.depth == 1
        line = inclusion.line if direct else line
        relative = folders.relative(inclusion.path)
        library = rules.library_of_header(relative or inclusion.path)
        # CUDA's own headers include parts of CUB and Thrust, which a candidate may not include itself; a library of
        # functions may not come in by any way.
        if library is not None and (direct or rules.has_functions(library)):
            yield _Hit(ScreenRule.LIBRARY_HEADER, f"includes {relative or inclusion.path}, a header of {library}", line)
        elif relative is None:
            yield _Hit(ScreenRule.FOREIGN_HEADER, "includes a file outside the toolchain's own header folders", line)


def _tokens(tokens: Sequence[Token]) -> Iterator[_Hit]:
    loading = False
    for position, token in enumerate(tokens):
        if token.kind is Kind.STRING:
            yield from _string(tokens, position)
        elif token.kind is Kind.NAME and not _is_member(tokens, position):
            loading = loading or token.text in rules.DYNAMIC_LOADING
            yield from _name(tokens, position)
    if loading:
        for token in tokens:
            if token.kind is Kind.STRING and _SONAME.fullmatch(token.text):
                yield _Hit(ScreenRule.DYNAMIC_LOADING, f"names the library {token.text}", token.line)
    yield from _declarations(tokens)
    yield from _entry_points(tokens)


def _string(tokens: Sequence[Token], position: int) -> Iterator[_Hit]:
    token = tokens[position]
    if rules.DEVICE_CODE_SECTION.search(token.text):
        yield _Hit(ScreenRule.EMBEDDED_DEVICE_CODE, "writes to a section that holds device code", token.line)
    printer = assembly.printed_by(tokens, position)
    if assembly.is_assembly(tokens, position):
        found = assembly.findings_in_assembly(token.text)
    else:
        found = assembly.findings_in_printed(token.text, printer) if printer is not None else iter(())
    for rule, message in found:
        yield _Hit(rule, message, token.line)


def _name(tokens: Sequence[Token], position: int) -> Iterator[_Hit]:
    token = tokens[position]
    if token.text in rules.DYNAMIC_LOADING:
        yield _Hit(ScreenRule.DYNAMIC_LOADING, f"uses {token.text}", token.line)
    elif rules.CODE_LOADING.fullmatch(token.text) or rules.REGISTRATION.fullmatch(token.text):
        yield _Hit(ScreenRule.DEVICE_CODE_LOADING, f"uses {token.text}", token.line)
    elif token.text in rules.HOST_CALLBACKS:
        yield _Hit(ScreenRule.HOST_CALLBACK, f"uses {token.text}", token.line)
    elif _follows(tokens, position, "::") and position + 2 < len(tokens):
        algorithm = tokens[position + 2].text
        if token.text == "thrust" or (token.text == "cub" and algorithm.startswith("Device")):
            yield _Hit(ScreenRule.LIBRARY_FUNCTION, f"uses {token.text}::{algorithm}", token.line)
        elif token.text == "Function" and algorithm.startswith("GetGlobal"):
            yield _Hit(ScreenRule.HOST_CALLBACK, f"uses {token.text}::{algorithm}", token.line)
        elif token.text == "Module" and algorithm == "LoadFromFile":
            yield _Hit(ScreenRule.DYNAMIC_LOADING, f"uses {token.text}::{algorithm}", token.line)


def _declarations(tokens: Sequence[Token]) -> Iterator[_Hit]:
    """Functions of a library that the candidate declares itself (``extern "C"``) instead of including a header."""
    position, own = 0, _own_functions(tokens)
    while position < len(tokens) - 2:
        if tokens[position].text != "extern" or tokens[position + 1][:2] != (Kind.STRING, "C"):
            position += 1
            continue
        position += 2
        inside = int(tokens[position].text == "{")
        depth = 0
        while position < len(tokens):
            text = tokens[position].text
            depth += (text == "{") - (text == "}")
            if depth == 0 and text in ("}", ";"):
                break
            library = rules.library_of_function(text) if depth == inside else None
            if library is not None and text not in own and _is_declaration(tokens, position):
                yield _Hit(ScreenRule.LIBRARY_FUNCTION, f"declares {text} of {library}", tokens[position].line)
            position += 1


def _own_functions(tokens: Sequence[Token]) -> set[str]:
    """Names that a body follows behind their parameters. What is undefined all the same the object shows."""
    names: set[str] = set()
    opened: list[int] = []
    for position, token in enumerate(tokens):
        if token.text == "(" and token.kind is Kind.PUNCT:
            opened.append(position)
        elif token.text == ")" and token.kind is Kind.PUNCT and opened:
            before = opened.pop() - 1
            if before >= 0 and tokens[before].kind is Kind.NAME and _follows(tokens, position, "{"):
                names.add(tokens[before].text)
    return names


def _is_declaration(tokens: Sequence[Token], position: int) -> bool:
    """Whether a name is followed by parameters and no body."""
    if tokens[position].kind is not Kind.NAME or not _follows(tokens, position, "("):
        return False
    depth = 0
    for index in range(position + 1, min(position + _MAX_PARAMETER_TOKENS, len(tokens))):
        depth += (tokens[index].text == "(") - (tokens[index].text == ")")
        if depth == 0:
            return not _follows(tokens, index, "{")
    return True


def _entry_points(tokens: Sequence[Token]) -> Iterator[_Hit]:
    """Lookups of driver functions by name: only of those that encode tensor maps, and by a name that can be read."""
    lookups = [i for i, token in enumerate(tokens) if token.text in rules.ENTRY_POINT_LOOKUP]
    if not lookups:
        return
    # A function that the source names as well is linked to, and its name in a string is that of a message.
    linked = {token.text for token in tokens if token.kind is Kind.NAME} - rules.ENTRY_POINT_LOOKUP
    looked_up = {position + 2 for position in lookups}
    places = [i for i, token in enumerate(tokens) if token.kind is Kind.STRING and _DRIVER_NAME.fullmatch(token.text)]
    names = [tokens[i] for i in places if i in looked_up or tokens[i].text not in linked]
    for token in names:
        if not rules.ALLOWED_ENTRY_POINT.fullmatch(token.text):
            yield _Hit(ScreenRule.DRIVER_ENTRY_POINT, f"looks up the driver function {token.text}", token.line)
    readable = any(rules.ALLOWED_ENTRY_POINT.fullmatch(token.text) for token in names)
    for position in lookups:
        argument = tokens[position + 2] if position + 2 < len(tokens) else None
        literal = argument is not None and argument.kind is Kind.STRING and _follows(tokens, position, "(")
        if literal and argument is not None and not _DRIVER_NAME.fullmatch(argument.text):
            yield _Hit(ScreenRule.DRIVER_ENTRY_POINT, f"looks up the driver function {argument.text}", argument.line)
        elif not literal and not readable:
            message = "looks up a driver function whose name is not written in the source"
            yield _Hit(ScreenRule.DRIVER_ENTRY_POINT, message, tokens[position].line)


def _undefined(name: str) -> tuple[ScreenRule, str] | None:
    """Rule and message for a function that the object calls."""
    name = name.partition("@")[0]  # a version, as .symver of inline assembly asks for it
    if name in rules.DYNAMIC_LOADING or rules.LOADING_SYMBOL.fullmatch(name):
        return ScreenRule.DYNAMIC_LOADING, f"calls {name}"
    if name in rules.PROCESS_CREATION:
        return ScreenRule.PROCESS_CREATION, f"calls {name}"
    if rules.CODE_LOADING.fullmatch(name):
        return ScreenRule.DEVICE_CODE_LOADING, f"calls {name}"
    if name in rules.HOST_CALLBACKS:
        return ScreenRule.HOST_CALLBACK, f"calls {name}"
    if rules.OBSERVATION.fullmatch(name):
        return ScreenRule.HOST_CALLBACK, f"calls {name}, which is for those who watch a process and not for a kernel"
    library = rules.library_of_function(name)
    return None if library is None else (ScreenRule.LIBRARY_SYMBOL, f"calls {name} of {library}")


def _unreadable(error: Exception) -> Finding:
    """No compiler writes such an object unless the source tampers with its sections."""
    return Finding(rule=ScreenRule.UNREADABLE_OBJECT, message=f"the built object cannot be inspected: {error}")


def _holds_device_code(content: bytes) -> bool:
    if fatbin.MAGIC in content:
        return True
    position = content.find(_CUBIN_MAGIC)
    while position >= 0:
        machine = content[position + _MACHINE_OFFSET : position + _MACHINE_OFFSET + 2]
        if machine == EM_CUDA.to_bytes(2, "little"):
            return True
        position = content.find(_CUBIN_MAGIC, position + 1)
    return False


def _follows(tokens: Sequence[Token], position: int, text: str) -> bool:
    return position + 1 < len(tokens) and tokens[position + 1].text == text


def _is_member(tokens: Sequence[Token], position: int) -> bool:
    return position > 0 and tokens[position - 1].text in (".", "->")
