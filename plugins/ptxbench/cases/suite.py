"""Suites: which definitions and workloads are run, against what, under which numbers."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from ptxbench.cases.arch import Arch, available_archs, load_arch
from ptxbench.cases.case import Baseline, Case, InputRecipe, Op, Positive, Tolerance
from ptxbench.cases.defaults import default_fields
from ptxbench.cases.formula import FormulaError, evaluate
from ptxbench.cases.integers import resolved
from ptxbench.cases.names import expect_known
from ptxbench.cases.structure import formula_values
from ptxbench.cases.yaml_file import read_yaml
from ptxbench.errors import InputError
from ptxbench.records import Record
from ptxbench.trace.base import FileName, Loc, Text
from ptxbench.trace.collection import WorkloadLine, load_definition, read_workloads
from ptxbench.trace.definition import Definition
from ptxbench.trace.document import Document
from ptxbench.trace.faults import FileError, did_you_mean
from ptxbench.trace.fitting import WORKLOAD, check_fit
from ptxbench.trace.workload import SafetensorsInput, Workload

ALL = "all"
"""Name of the suite that is made of every suite; no file may have it."""

Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]


class Protocol(Record):
    """How one evaluation measures (PROTOCOL 4.4, 4.5)."""

    trials: Positive
    warmup: Annotated[int, Field(ge=0)]
    iterations: Positive


class GivenEntry(Record):
    """One entry of a suite file, as far as it goes. None: what ``defaults`` says of any definition."""

    definition: FileName
    workload: Text
    op: Op | None = None
    archs: Annotated[tuple[Text, ...], Field(min_length=1)]
    baseline: Baseline | None = None
    tolerance: Tolerance | None = None
    input_recipe: InputRecipe | None = None
    causal: bool | None = None
    flops: Text | None = None
    bytes: Text | None = None
    shrunk_axes: dict[Text, Positive] | None = None
    variants: dict[Text, Annotated[tuple[Slug, ...], Field(min_length=1)]] | None = None


class CaseEntry(GivenEntry):
    """A whole entry, before it is bound to files and architectures."""

    op: Op
    baseline: Baseline
    tolerance: Tolerance
    input_recipe: InputRecipe
    causal: bool
    flops: Text
    bytes: Text
    shrunk_axes: dict[Text, Positive]
    variants: dict[Text, Annotated[tuple[Slug, ...], Field(min_length=1)]]


def completed(entry: GivenEntry, definition: Definition) -> CaseEntry:
    """The entry with what it leaves open filled in."""
    fields = default_fields(definition)
    values = {
        **{name.removesuffix("_formula"): value for name, value in fields.items()},
        "variants": dict.fromkeys(entry.archs, ("none",)),
        **{name: value for name, value in entry if value is not None},
    }
    return CaseEntry(**values)


class SuiteFile(Record):
    """``cases/suites/<name>.yaml``."""

    schema_version: Literal[1]
    name: Slug
    title: Text
    protocol: Protocol = Protocol(trials=3, warmup=10, iterations=50)
    cases: Annotated[tuple[GivenEntry, ...], Field(min_length=1)]


class Suite(Record):
    """A loaded suite: every case on every architecture it is run on."""

    name: str
    title: str
    archs: tuple[str, ...]
    """In order of first appearance."""
    table: tuple[Case, ...]

    def cases(self, arch: str) -> tuple[Case, ...]:
        """Cases on ``arch``, in suite order. Raises InputError when the suite does not run there."""
        expect_known(f"arch of suite {self.name}", arch, self.archs)
        return tuple(case for case in self.table if case.arch.name == arch)

    def case(self, name: str, arch: str) -> Case:
        """One case. Raises InputError when there is none of that name on ``arch``."""
        cases = {case.name: case for case in self.cases(arch)}
        expect_known(f"case of suite {self.name} on {arch}", name, tuple(cases))
        return cases[name]


def available_suites(root: Path) -> tuple[str, ...]:
    """Names of the suites in the checkout ``root``, sorted. Raises InputError for a file that is named ``all``."""
    names = sorted(path.stem for path in (root / "cases" / "suites").glob("*.yaml"))
    if ALL in names:
        raise InputError(
            f"cases/suites/{ALL}.yaml: expected another name, found {ALL!r}, which means every suite; rename the file"
        )
    return tuple(names)


def load_suite(root: Path, name: str) -> Suite:
    """Read ``cases/suites/<name>.yaml`` with all definitions, workloads and architectures it names.

    ``all`` is every suite of the checkout, one after the other; each case keeps the name of its own.

    Raises:
        InputError: no such suite, or a file breaks its schema or does not fit the others; with file, line, field,
            expected and found.
    """
    if name == ALL:
        return _all_suites(root)
    expect_known("suite", name, (*available_suites(root), ALL))
    document = read_yaml(root / "cases" / "suites" / f"{name}.yaml")
    suite = document.parse(SuiteFile)
    if suite.name != name:
        raise document.error(("name",), f"{name!r}, the name of the file", repr(suite.name))
    return _Binder(root, document, suite).suite()


def _all_suites(root: Path) -> Suite:
    suites = [load_suite(root, name) for name in _primary_first(available_suites(root))]
    table: dict[tuple[str, str], Case] = {}
    for case in (case for suite in suites for case in suite.table):
        known = table.setdefault((case.name, case.arch.name), case)
        if known is not case:
            raise InputError(
                f"--suite {ALL}: expected each definition in one suite, found {case.name} in {known.suite} and "
                f"{case.suite}; run them one after the other, or take it out of one"
            )
    archs = dict.fromkeys(arch for suite in suites for arch in suite.archs)
    return Suite(name=ALL, title="Every suite", archs=tuple(archs), table=tuple(table.values()))


def _primary_first(names: Sequence[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != "primary", name))


def select_cases(suite: Suite, archs: Sequence[str] = (), globs: Sequence[str] = ()) -> tuple[Case, ...]:
    """Cases on ``archs`` (default: all of the suite) whose names match one of ``globs`` (default: all), arch by arch.

    Raises:
        InputError: an architecture that the suite does not run on, or a glob that matches no case.
    """
    chosen = [case for arch in dict.fromkeys(archs or suite.archs) for case in suite.cases(arch)]
    names = tuple(dict.fromkeys(case.name for case in chosen))
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            raise InputError(
                f"unknown case: expected a name or glob that matches one of {', '.join(names)}; "
                f"found {glob!r}.{did_you_mean(glob, names)}"
            )
    return tuple(case for case in chosen if not globs or any(fnmatchcase(case.name, glob) for glob in globs))


def _definition_files(root: Path) -> dict[str, Path]:
    """Files of definitions by their names. Raises FileError for a name that two folders have."""
    found: dict[str, Path] = {}
    for path in sorted((root / "cases" / "definitions").glob("*/*.json")):
        first = found.setdefault(path.stem, path)
        if first is not path:
            raise FileError(path, None, "name", "each definition once", f"{path.stem!r} again after {first}")
    return found


class _Binder:
    """Joins the entries of one suite file with the files they name."""

    def __init__(self, root: Path, document: Document, suite: SuiteFile) -> None:
        self.root = root
        self.document = document
        self.file = suite
        self.definitions = _definition_files(root)
        self.archs: dict[str, Arch] = {}

    def suite(self) -> Suite:
        table: list[Case] = []
        for index, entry in enumerate(self.file.cases):
            loc: Loc = ("cases", index)
            if any(entry.definition == case.name for case in table):
                raise self.document.error((*loc, "definition"), "each definition once", f"{entry.definition!r} again")
            table += self._cases(entry, loc)
        return Suite(name=self.file.name, title=self.file.title, archs=tuple(self.archs), table=tuple(table))

    def _cases(self, given: GivenEntry, loc: Loc) -> list[Case]:
        definition = self._definition(given, loc)
        entry = completed(given, definition)
        workload = self._workload(entry, definition, loc)
        axes = definition.axis_values(workload.axes)
        self._check_shrunk_axes(entry, definition, axes, loc)
        self._check_variants(entry, loc)
        values = self._formula_values(entry, axes, workload, loc)
        return [
            Case(
                name=definition.name,
                suite=self.file.name,
                op=entry.op,
                definition=definition,
                workload=workload,
                arch=self._arch(arch, (*loc, "archs", index)),
                baseline=entry.baseline,
                tolerance=entry.tolerance,
                input_recipe=entry.input_recipe,
                causal=entry.causal,
                flops=self._amount(entry.flops, values, (*loc, "flops")),
                bytes=self._amount(entry.bytes, values, (*loc, "bytes")),
                flops_formula=entry.flops,
                bytes_formula=entry.bytes,
                shrunk_axes=entry.shrunk_axes,
                variants=entry.variants[arch],
                trials=self.file.protocol.trials,
                warmup=self.file.protocol.warmup,
                iterations=self.file.protocol.iterations,
            )
            for index, arch in enumerate(entry.archs)
        ]

    def _definition(self, entry: GivenEntry, loc: Loc) -> Definition:
        loc = (*loc, "definition")
        path = self.definitions.get(entry.definition)
        if path is None:
            raise self._unknown(loc, "a definition under cases/definitions", entry.definition, tuple(self.definitions))
        definition = load_definition(path)
        if (definition.name, definition.op_type) != (path.stem, path.parent.name):
            raise InputError(
                f"{path}: expected name {path.stem!r} and op_type {path.parent.name!r}, as the file's place says; "
                f"found {definition.name!r} and {definition.op_type!r}. To do: move the file or correct the fields."
            )
        for name, tensor in definition.outputs.items():
            if tensor.shape is None:
                raise self.document.error(loc, "tensor outputs, which a kernel can write", f"the scalar {name!r}")
        return definition

    def _workload(self, entry: CaseEntry, definition: Definition, loc: Loc) -> Workload:
        loc = (*loc, "workload")
        path = self.root / "cases" / "workloads" / definition.op_type / f"{definition.name}.jsonl"
        lines: dict[str, WorkloadLine] = {}
        for document, trace in read_workloads(path):
            if trace.definition != definition.name:
                expected = f"{definition.name!r}, as the file's name says"
                raise document.error(("definition",), expected, repr(trace.definition))
            check_fit(document, definition, trace.workload)
            lines[trace.workload.uuid] = WorkloadLine(document, trace)
        if entry.workload not in lines:
            raise self._unknown(loc, f"a uuid of {path.name}", entry.workload, tuple(lines))
        document, trace = lines[entry.workload]
        for name, source in trace.workload.inputs.items():
            if isinstance(source, SafetensorsInput):
                place, advice = (*WORKLOAD, "inputs", name, "type"), "run such a workload with --trace-set."
                raise document.error(place, "random or scalar: a suite has no files", "'safetensors'", advice)
        return resolved(definition, trace.workload)

    def _arch(self, name: str, loc: Loc) -> Arch:
        if name not in self.archs:
            known = available_archs(self.root)
            if name not in known:
                raise self._unknown(loc, "an arch under knowledge_packs", name, known)
            self.archs[name] = load_arch(self.root, name)
        return self.archs[name]

    def _check_shrunk_axes(self, entry: CaseEntry, definition: Definition, axes: dict[str, int], loc: Loc) -> None:
        for axis, value in entry.shrunk_axes.items():
            place = (*loc, "shrunk_axes", axis)
            if axis not in definition.var_axes:
                raise self._unknown(place, f"a var axis of {definition.name}", axis, definition.var_axes)
            if value > axes[axis]:
                raise self.document.error(place, f"at most {axes[axis]}, the workload's value", str(value))

    def _check_variants(self, entry: CaseEntry, loc: Loc) -> None:
        loc = (*loc, "variants")
        if len(set(entry.archs)) != len(entry.archs) or set(entry.variants) != set(entry.archs):
            expected = f"one list for each arch in archs ({', '.join(entry.archs)}), each arch once"
            raise self.document.error(loc, expected, f"lists for {', '.join(entry.variants) or 'none'}")
        for arch, variants in entry.variants.items():
            if variants[0] != "none" or len(set(variants)) != len(variants):
                expected = "variants that start with none, each once"
                raise self.document.error((*loc, arch), expected, ", ".join(variants))

    def _formula_values(self, entry: CaseEntry, axes: dict[str, int], workload: Workload, loc: Loc) -> dict[str, int]:
        try:
            formula_values(entry.input_recipe, {**axes, **entry.shrunk_axes}, workload.uuid)
            return formula_values(entry.input_recipe, axes, workload.uuid)
        except InputError as error:
            raise self.document.error((*loc, "input_recipe"), "axes with such sequences", str(error)) from None
        except KeyError as error:
            expected = f"a definition with the axes of {entry.input_recipe}"
            raise self.document.error((*loc, "input_recipe"), expected, f"none named {error}") from None

    def _amount(self, formula: str, axes: dict[str, int], loc: Loc) -> int:
        try:
            return evaluate(formula, axes)
        except FormulaError as error:
            raise self.document.error(loc, error.expected, error.found) from None

    def _unknown(self, loc: Loc, expected: str, found: str, known: Sequence[str]) -> InputError:
        listed = f"{expected}: {', '.join(known) or '(none exist)'}"
        return self.document.error(loc, listed, f"{found!r}.{did_you_mean(found, known)}".removesuffix("."))
