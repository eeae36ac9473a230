"""What can be said of a pack's texts without a compiler: each rule is a function that yields what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from ptxbench.cases import load_suite
from ptxbench.errors import InputError
from ptxbench.packs.pack import LEVELS, PACK_FILE, PackFolder, load_pack, open_pack
from ptxbench.packs.source import (
    Header,
    asm_statements,
    closure_code,
    function_code,
    read_header,
    strip_comments,
)
from ptxbench.packs.tokens import count_tokens, estimate_tokens
from ptxbench.packs.validation import NO_INSTRUCTION, VALIDATION_FILE, Claim, load_claims
from ptxbench.trace.document import read_text

FULL_TOKENS = (20_000, 30_000)
"""Size of a full pack (PROTOCOL 6)."""
PARAMS_TOKENS = 500
"""The parameters of a pack, its first line included, are fewer."""

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_CALL = re.compile(r"\b([A-Za-z]\w*)\s*(?:<[\w\s,:]*>)?\(")
_FOREIGN = re.compile(r"__|cuda|cu[A-Z]|tvm|TVM|static_cast|reinterpret_cast|const_cast|make_float|make_uint")
_NAME = re.compile(r"\b[A-Za-z]\w*_\w*\b")
_MISSPELT = 0.8
"""Likeness from which a word of prose counts as a misspelt function. At 0.8 no word of our packs is taken for one."""
_MACHINE_PATH = re.compile(r"(?<![\w.])/(?:home|usr|opt|work|tmp|root)/")
_STRINGS_MEET = re.compile(r'" *(#?\w*) *"')
"""Neighbouring strings, or a macro's parameter between two, for which claims write an asterisk."""
_PTX_WORD = re.compile(r"\b(?:[a-z]\w*)(?:\.[a-z][\w:]*)+")


class Found(NamedTuple):
    """One defect."""

    rule: str
    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}: {self.message}"


class _Texts(NamedTuple):
    root: Path
    opened: PackFolder
    headers: tuple[Header, ...]
    claims: dict[str, Claim]

    @property
    def functions(self) -> tuple[str, ...]:
        return tuple(name for header in self.headers for name in header.functions)

    @property
    def prose(self) -> tuple[Path, ...]:
        """Contracts, guidance, schedules, and the Markdown among the templates."""
        templates = (path for path in self.opened.paths("templates") if path.suffix == ".md")
        schedules = (path for paths in self.opened.schedule_paths().values() for path in paths)
        return tuple(
            dict.fromkeys((*templates, *self.opened.paths("contracts"), *self.opened.paths("guidance"), *schedules))
        )

    def place(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


def lint(root: Path, arch: str) -> tuple[Found, ...]:
    """All defects of an architecture's pack that its texts show. An interim pack is one by itself.

    Raises:
        InputError: no such architecture.
    """
    place = f"knowledge_packs/{arch}/{PACK_FILE}"
    try:
        opened = open_pack(root, arch)
        for level in LEVELS:
            load_pack(root, arch, level)
        if opened.file.interim:
            return (Found("interim", place, "a stand-in; write the full pack and set interim to false"),)
        headers = tuple(read_header(path) for path in opened.headers())
        texts = _Texts(root, opened, headers, load_claims(opened.folder))
    except InputError as error:
        return (Found("unreadable", place, str(error)),)
    return tuple(found for rule in RULES for found in rule(texts))


def _files(texts: _Texts) -> Iterator[Found]:
    """Every file of the folder is named by pack.yaml."""
    opened = texts.opened
    named = {*opened.paths("params"), *opened.paths("templates"), *texts.prose}
    named |= {opened.folder / name for name in (PACK_FILE, "arch.yaml", f"templates/{VALIDATION_FILE}")}
    for path in sorted(opened.folder.rglob("*")):
        if path.is_file() and path not in named:
            yield Found("unnamed-file", texts.place(path), f"{PACK_FILE} does not name it: no prompt would hold it")


def _order(texts: _Texts) -> Iterator[Found]:
    """Headers have a guard, and come after those that they include."""
    seen: set[str] = set()
    for header in texts.headers:
        if "#pragma once" not in header.text:
            yield Found("guard", texts.place(header.path), "expected #pragma once")
        for name in header.sibling_includes:
            if name not in seen:
                yield Found(
                    "order", texts.place(header.path), f"includes {name}, which {PACK_FILE} does not name before it"
                )
        seen.add(header.path.name)


def _claimed(texts: _Texts) -> Iterator[Found]:
    """Functions and claims are the same; what a claim says of PTX stands in the function."""
    place = f"knowledge_packs/{texts.opened.arch.name}/templates/{VALIDATION_FILE}"
    functions = set(texts.functions)
    for name in sorted(functions - texts.claims.keys()):
        yield Found("no-claim", place, f"says nothing of {name}")
    definitions = [found for header in texts.headers for found in header.definitions]
    for name, claim in texts.claims.items():
        if name not in functions:
            yield Found("no-function", place, f"{name}: no header defines it")
            continue
        code = function_code(definitions, name)
        instructions = _STRINGS_MEET.sub(lambda found: "*" if found[1] else "", closure_code(definitions, name))
        for mnemonic in claim.ptx:
            if mnemonic != NO_INSTRUCTION and mnemonic not in instructions:
                yield Found("ptx", place, f"{name}: its text does not hold {mnemonic!r}")
        if NO_INSTRUCTION in claim.ptx and any(
            not each.text.lstrip().startswith('""') for each in asm_statements(code)
        ):
            yield Found("ptx", place, f"{name}: its assembly holds instructions, and `ptx` says that there are none")
        if not claim.ptx and asm_statements(code):
            yield Found("ptx", place, f"{name}: has inline assembly, and `ptx` names no instruction of it")
        if claim.ptx and not claim.sass and not claim.host:
            yield Found("sass", place, f"{name}: `sass` says nothing of what its PTX becomes")
        if not re.search(rf"\b{name}\b", claim.use):
            yield Found("use", place, f"{name}: `use` does not use it")


def _clobbers(texts: _Texts) -> Iterator[Found]:
    """Inline assembly with an effect is volatile and clobbers memory."""
    for header in texts.headers:
        for found in header.definitions:
            pure = bool(found.functions) and all(
                texts.claims[name].pure for name in found.functions if name in texts.claims
            )
            for statement in asm_statements(found.code):
                place = f"{texts.place(header.path)}:{found.line}"
                name = ", ".join(found.names)
                if not pure and not (statement.volatile and statement.clobbers_memory):
                    yield Found("clobber", place, f'{name}: expected asm volatile with a "memory" clobber')


def _pure(texts: _Texts) -> Iterator[Found]:
    """A function that claims to be pure, and so needs no clobber, neither has nor calls assembly with an effect."""
    definitions = [found for header in texts.headers for found in header.definitions]
    place = f"knowledge_packs/{texts.opened.arch.name}/templates/{VALIDATION_FILE}"
    for name in (name for name, claim in texts.claims.items() if claim.pure):
        statements = asm_statements(closure_code(definitions, name))
        if any(statement.volatile or statement.clobbers_memory for statement in statements):
            yield Found("pure", place, f"{name}: claims to be pure; its assembly is volatile or clobbers memory")


def _documented(texts: _Texts) -> Iterator[Found]:
    """Every function has a comment, its own or that of the group it stands in."""
    for header in texts.headers:
        covered = False
        for found in header.definitions:
            covered = bool(found.comment) or (covered and found.joined)
            if found.functions and not covered:
                place = f"{texts.place(header.path)}:{found.line}"
                yield Found("comment", place, f"{', '.join(found.functions)}: expected a comment above it")


def _helper_names(texts: _Texts) -> Iterator[Found]:
    """Prose and its code name only helpers that the templates define."""
    words = {
        name for header in texts.headers for found in header.definitions for name in (*found.names, *found.functions)
    }
    prefixes = {name.split("_")[0] for name in texts.functions if "_" in name}
    for path in texts.prose:
        text = read_text(path)
        known = words | {name for _, block in FENCE.findall(text) for name in _local_names(block)}
        unknown = {name: None for name in _mentioned(text, prefixes) if name not in known and not _FOREIGN.match(name)}
        for name in unknown:
            yield Found("helper", texts.place(path), f"names {name}, which no template defines")
        for name, meant in _misspelt(text, texts.functions, known | unknown.keys()):
            yield Found(
                "helper", texts.place(path), f"names {name}, which no template defines; {meant} is one that does"
            )


def _mentioned(text: str, prefixes: set[str]) -> Iterator[str]:
    for _, block in FENCE.findall(text):
        code = strip_comments(block)
        yield from (name for name in _CALL.findall(code) if name.split("_")[0] in prefixes and "_" in name)
    for span in _SPAN.findall(FENCE.sub("", text)):
        bare = _PTX_WORD.sub("", span)
        yield from (name for name in _CALL.findall(bare) if "_" in name)
        if re.fullmatch(r"\w+", span) and "_" in span and span.split("_")[0] in prefixes:
            yield span


def _misspelt(text: str, functions: tuple[str, ...], known: set[str]) -> Iterator[tuple[str, str]]:
    """Words that are all but a function's name, and what is meant; those without ``_`` only where they are called."""
    called = (name for span in _SPAN.findall(FENCE.sub("", text)) for name in _CALL.findall(span))
    for name in dict.fromkeys((*_NAME.findall(text), *called)):
        alike = [each for each in functions if ("_" in each) == ("_" in name)]
        close = () if name in known else get_close_matches(name, alike, n=1, cutoff=_MISSPELT)
        if close:
            yield name, close[0]


def _local_names(block: str) -> Iterator[str]:
    """Functions that a block of code defines itself."""
    for line in block.splitlines():
        found = re.match(r"\s*(?:static|inline|template|__\w+__|void|auto|const)\b[^=;(]*?\b(\w+)(?:\(|\s*=)", line)
        if found:
            yield found[1]
        yield from re.findall(r"(?:__launch_bounds__|__cluster_dims__)\([^)]*\)\s*(?:void\s+)?(\w+)\(", line)


def _schedules(texts: _Texts) -> Iterator[Found]:
    """Every prompt variant of the suites has a schedule, and every schedule is a variant of one."""
    arch = texts.opened.arch.name
    suites = sorted(path.stem for path in (texts.root / "cases" / "suites").glob("*.yaml"))
    wanted = {
        variant for suite in suites for case in load_suite(texts.root, suite).cases(arch) for variant in case.variants
    }
    place = f"knowledge_packs/{arch}/{PACK_FILE}"
    for name in sorted(wanted - {"none"} - texts.opened.file.schedules.keys()):
        yield Found("schedule", place, f"no schedule for the prompt variant {name}")
    for name in sorted(texts.opened.file.schedules.keys() - wanted):
        yield Found("schedule", place, f"the schedule {name} is no prompt variant of any suite")


def _sizes(texts: _Texts) -> Iterator[Found]:
    """The pack has the size that the protocol gives it: counted where a tokenizer is installed, else estimated."""
    arch = texts.opened.arch.name
    place = f"knowledge_packs/{arch}"
    full = _tokens(load_pack(texts.root, arch, "full").text)
    low, high = FULL_TOKENS
    if not low <= full <= high:
        yield Found("size", place, f"expected {low:,} to {high:,} tokens; found about {full:,}")
    params = _tokens(load_pack(texts.root, arch, "params").text)
    if params >= PARAMS_TOKENS:
        yield Found("size", place, f"expected fewer than {PARAMS_TOKENS} tokens of parameters; found about {params}")


def _tokens(text: str) -> int:
    try:
        return count_tokens(text)
    except InputError:
        return estimate_tokens(text)


def _machine(texts: _Texts) -> Iterator[Found]:
    """No text names a place of some machine."""
    for path in sorted(texts.opened.folder.rglob("*")):
        # Bytes: a file that no prompt holds may be no text, and its rule is to name it.
        if path.is_file() and (found := _MACHINE_PATH.search(path.read_bytes().decode(errors="replace"))):
            yield Found("machine-path", texts.place(path), f"holds {found[0]!r}")


Rule = Callable[[_Texts], Iterable[Found]]
RULES: tuple[Rule, ...] = (
    *(_files, _order, _claimed, _clobbers, _pure, _documented),
    *(_helper_names, _schedules, _sizes, _machine),
)
