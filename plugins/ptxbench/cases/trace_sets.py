"""Collections as a suite: every workload of every definition, on every architecture, bound to what it is judged by.

A definition that a suite of the checkout has too takes that suite's baseline and formulas. Any other is an operator
that nobody here knows: its baseline is its own reference, and its bounds claim nothing (``defaults``).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.cases.arch import Arch, available_archs, load_arch
from ptxbench.cases.bindings import Bindings, CollectionBinding, MadeInputs, read_bindings
from ptxbench.cases.case import Case
from ptxbench.cases.collection_case import CollectionCase
from ptxbench.cases.defaults import default_fields
from ptxbench.cases.formula import FormulaError, evaluate
from ptxbench.cases.integers import is_index, resolved
from ptxbench.cases.structure import formula_values
from ptxbench.cases.suite import Suite, available_suites, load_suite
from ptxbench.errors import InputError
from ptxbench.trace.base import Loc
from ptxbench.trace.collection import WorkloadLine
from ptxbench.trace.definition import AxisConst, Definition, DType
from ptxbench.trace.faults import did_you_mean
from ptxbench.trace.fitting import check_blobs
from ptxbench.trace.python_source import functions_of, may_define, parse_module
from ptxbench.trace.trace_set import TraceSet, read_trace_set, refuse_shared_names
from ptxbench.trace.workload import SafetensorsInput, Workload

SUITE_PREFIX = "trace-set"
"""Suites of collections are called so, with the names of their folders."""
STAGED = frozenset(
    {DType.BFLOAT16, DType.FLOAT16, DType.FLOAT32, DType.INT64, DType.INT32, DType.INT8, DType.BOOL},
)
"""Element types that the profiler can hand to a kernel."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_LONGEST = 100


class Collections(NamedTuple):
    """Some collections, loaded."""

    suite: Suite
    left_out: tuple[str, ...]
    """Definitions that cannot be run, each with the reason."""


def load_collections(
    root: Path, folders: Sequence[Path], globs: Sequence[str] = (), definitions: Collection[str] | None = None
) -> Collections:
    """The suite of the collections in ``folders``, bound in the checkout ``root``.

    Only definitions with a case that matches one of ``globs`` (default: all) are bound, and only their safetensors
    files are looked at: whoever runs a few cases of a large collection need not have fetched the rest. ``definitions``
    are the names of those that a stored run is of (default: all); there may be none of them any more.

    Raises:
        InputError: as ``read_trace_set``; a definition is in two of the collections; two cases have one name, as with
            definitions ``x`` and ``x.0123abcd``; a safetensors input is not what the definition wants; no case at
            all can be run, or none matches a glob.
    """
    sets = tuple(read_trace_set(folder) for folder in folders)
    refuse_shared_names(sets)
    archs = tuple(load_arch(root, name) for name in available_archs(root))
    names = _expect_different_names(sets)
    if not names:
        listed = ", ".join(map(str, folders))
        raise InputError(f"{listed}: expected a collection with workloads, found none; it holds nothing to run")
    _refuse_unmatched(globs, names)
    suite, known = suite_name(folders), _known_cases(root)
    table: list[Case] = []
    left_out: list[str] = []
    for trace_set in sets:
        binder = _Binder(trace_set, suite, archs, known)
        table += binder.cases(globs, definitions)
        left_out += [*binder.left_out, *(f"{path} is left out: it holds no workload" for path in trace_set.empty)]
    if not table and definitions is None:
        raise InputError(f"expected a case that can be run, found none: {'; '.join(left_out)}")
    title = f"Collection {', '.join(folder.name for folder in folders)}"
    return Collections(
        Suite(name=suite, title=title, archs=tuple(arch.name for arch in archs), table=tuple(table)), tuple(left_out)
    )


def missing_bindings(root: Path, folder: Path, cases: Sequence[CollectionCase]) -> list[CollectionBinding]:
    """What a collection in ``folder`` must say besides its files for its cases to be judged as ``cases`` are.

    Raises InputError as ``load_collections``.
    """
    if not cases:
        return []
    loaded = {(case.definition.name, case.workload.uuid): case for case in load_collections(root, [folder]).suite.table}
    found: list[CollectionBinding] = []
    for case in cases:
        plain = loaded[case.definition.name, case.workload.uuid]
        fields = {"tolerance": "tolerance", **FORMULAS, "shrunk_axes": "shrunk_axes", "made": "made"}
        own = {
            field: getattr(case, name) for field, name in fields.items() if getattr(case, name) != getattr(plain, name)
        }
        if own:
            found.append(CollectionBinding(definition=case.definition.name, workload=case.workload.uuid, **own))
    return found


def suite_name(folders: Sequence[Path]) -> str:
    """What the suite of these collections is called: the folders' names as a slug."""
    text = "-".join(folder.resolve().name for folder in folders).lower()
    return f"{SUITE_PREFIX}-{re.sub(r'[^a-z0-9]+', '-', text).strip('-') or 'unnamed'}"


def _refuse_unmatched(globs: Sequence[str], names: Sequence[str]) -> None:
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in names):
            shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
            raise InputError(
                f"unknown case: expected a name or glob that matches one of {shown}; "
                f"found {glob!r}.{did_you_mean(glob, names)}"
            )


def _known_cases(root: Path) -> dict[str, Case]:
    """A case of each definition that a suite of the checkout has, by the definition's name."""
    suites = (load_suite(root, name) for name in available_suites(root))
    return {case.definition.name: case for suite in suites for case in reversed(suite.table)}


def _plain_name(text: str) -> str:
    """``text`` as a part of pytest ids and of file names; different texts stay different."""
    if _NAME.fullmatch(text) and len(text) <= _LONGEST:
        return text
    cleaned = re.sub(r"[^A-Za-z0-9._+-]+", "_", text).strip("._-+")[: _LONGEST - 9]
    return f"{cleaned or 'unnamed'}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _case_names(trace_set: TraceSet) -> dict[tuple[str, str], str]:
    """Definition and uuid -> name of the case: the definition's, with the start of the uuid where it has several."""
    names: dict[tuple[str, str], str] = {}
    for definition, lines in trace_set.workloads.items():
        uuids = [line.trace.workload.uuid for line in lines]
        starts = [uuid[:8] for uuid in uuids]
        short = len(set(starts)) == len(starts) and all(_NAME.fullmatch(start) for start in starts)
        for uuid, start in zip(uuids, starts, strict=True):
            label = start if short else hashlib.sha256(uuid.encode()).hexdigest()[:12]
            names[definition, uuid] = _plain_name(definition) + (f".{label}" if len(uuids) > 1 else "")
    return names


def _expect_different_names(sets: Sequence[TraceSet]) -> list[str]:
    """The names of all cases. Raises FileError for two of one name, of which every table has place for one."""
    seen: dict[str, tuple[str, str]] = {}
    for trace_set in sets:
        for workload, name in _case_names(trace_set).items():
            first = seen.setdefault(name, workload)
            if first != workload:
                expected = "a name by which cases can be told apart"
                found = f"{name} of its workload {workload[1]} and of workload {first[1]} of {first[0]}"
                document = trace_set.definitions[workload[0]].document
                raise document.error(("name",), expected, found, "rename the definition.")
    return list(seen)


def same_operation(ours: Definition, theirs: Definition) -> bool:
    """Whether two definitions of one name describe the same tensors, so that one's baseline serves the other.

    Theirs may fix an axis that ours takes from the workload, as public collections do.
    """
    if (ours.name, list(ours.axes)) != (theirs.name, list(theirs.axes)):
        return False
    for name, axis in ours.axes.items():
        if isinstance(axis, AxisConst) and theirs.const_axes.get(name) != axis.value:
            return False
    pairs = ((ours.inputs, theirs.inputs), (ours.outputs, theirs.outputs))
    return all(
        [(name, tensor.shape, tensor.dtype) for name, tensor in one.items()]
        == [(name, tensor.shape, tensor.dtype) for name, tensor in other.items()]
        for one, other in pairs
    )


def why_not(definition: Definition) -> str:
    """Why a definition cannot be run here; empty where it can."""
    for name, tensor in definition.outputs.items():
        if tensor.shape is None:
            return f"its output {name} is a scalar, which no kernel can write"
    for name, tensor in (*definition.inputs.items(), *definition.outputs.items()):
        if tensor.shape is not None and tensor.dtype not in STAGED:
            return f"its tensor {name} is of {tensor.dtype.value}, which cannot be handed to a kernel yet"
    return ""


class _Binder:
    """Makes the cases of one collection."""

    def __init__(self, trace_set: TraceSet, suite: str, archs: Sequence[Arch], known: Mapping[str, Case]) -> None:
        self.left_out: list[str] = []
        self._set = trace_set
        self._suite = suite
        self._archs = archs
        self._known = known
        workloads = {
            name: [line.trace.workload.uuid for line in trace_set.workloads.get(name, ())]
            for name in trace_set.definitions
        }
        self._bindings: Bindings = read_bindings(trace_set.root, workloads)

    def cases(self, globs: Sequence[str], definitions: Collection[str] | None) -> list[Case]:
        """Every case of the definitions that a glob matches, definition by definition, on all architectures."""
        names = _case_names(self._set)
        found: list[Case] = []
        for definition, lines in self._set.workloads.items():
            if definitions is not None and definition not in definitions:
                continue
            own = [names[definition, line.trace.workload.uuid] for line in lines]
            if globs and not any(fnmatchcase(name, glob) for name in own for glob in globs):
                continue
            reason = why_not(self._set.definitions[definition].definition)
            if reason:
                self.left_out.append(f"{definition} is left out: {reason}")
                continue
            for name, line in zip(own, lines, strict=True):
                found += self._on_all_archs(name, line)
        return found

    def _on_all_archs(self, name: str, line: WorkloadLine) -> Iterable[Case]:
        definition = self._set.definitions[line.trace.definition].definition
        workload = resolved(definition, line.trace.workload)
        blobs = check_blobs(line.document, self._set.root, definition, workload)
        fields = {
            **self._fields(definition, workload),
            "name": name,
            "suite": self._suite,
            "definition": definition,
            "workload": workload,
            "variants": ("none",),
            "collection_root": str(self._set.root.absolute()),
            "blobs": blobs,
        }
        return [CollectionCase(**{**fields, "arch": arch}) for arch in self._archs]

    def _check_made(self, definition: Definition, workload: Workload, made: MadeInputs) -> None:
        def refuse(loc: Loc, expected: str, found: str) -> InputError:
            return self._bindings.error(definition.name, workload.uuid, ("made", *loc), expected, found)

        tensors = [name for name, tensor in definition.inputs.items() if tensor.shape is not None]
        for index, name in enumerate(made.inputs):
            if name not in tensors:
                raise refuse(("inputs", index), f"names of tensors ({', '.join(tensors)})", name)
        if not may_define(definition.reference, made.function):
            functions = ", ".join(functions_of(parse_module(definition.reference)))
            raise refuse(("function",), f"a function of the reference ({functions})", repr(made.function))

    def _fields(self, definition: Definition, workload: Workload) -> dict[str, Any]:
        """What the case is judged by: from the collection's own file, from a suite, else the defaults."""
        fallbacks = default_fields(definition)
        known = self._known.get(definition.name)
        if known is not None and same_operation(known.definition, definition):
            fields = {name: getattr(known, name) for name in Case.model_fields}
        else:
            fields = dict(fallbacks)
        own = self._bindings.of(definition.name, workload.uuid)
        made = own.get("made")
        if isinstance(made, MadeInputs):
            self._check_made(definition, workload, made)
        if made or any(isinstance(source, SafetensorsInput) for source in workload.inputs.values()):
            # What is read from files, or made by a function, is not made by a recipe, and has one size.
            fields |= {"input_recipe": "normal", "shrunk_axes": {}}
            if any(tensor.shape is not None and is_index(tensor.dtype) for tensor in definition.inputs.values()):
                # A suite's formulas count what its own recipe's indices read. Others may name a page many times.
                fields |= {formula: fallbacks[formula] for formula in FORMULAS.values()}
        fields |= {FORMULAS.get(name, name): value for name, value in own.items()}
        fields["shrunk_axes"] = self._shrunk_axes(definition, workload, fields["shrunk_axes"], own)
        return fields | self._amounts(definition, workload, fields, own)

    def _shrunk_axes(
        self, definition: Definition, workload: Workload, wanted: Mapping[str, int], own: Mapping[str, object]
    ) -> dict[str, int]:
        """Those of the small sizes that the workload has room for. A file's own must all be."""
        axes = definition.axis_values(workload.axes)
        # A suite's small sizes are for axes that its definition leaves open.
        largest = {name: axes[name] for name in definition.var_axes}
        for name, size in wanted.items():
            if "shrunk_axes" in own and size > largest.get(name, 0):
                listed = ", ".join(f"{axis} up to {most}" for axis, most in largest.items())
                loc = ("shrunk_axes", name)
                raise self._bindings.error(
                    definition.name, workload.uuid, loc, f"var axes and their sizes ({listed})", f"{name}: {size}"
                )
        return {name: size for name, size in wanted.items() if size <= largest.get(name, 0)}

    def _amounts(
        self, definition: Definition, workload: Workload, fields: Mapping[str, Any], own: Mapping[str, object]
    ) -> dict[str, Any]:
        """FLOPs and bytes, with their formulas."""
        axes, fallbacks = definition.axis_values(workload.axes), default_fields(definition)
        found: dict[str, Any] = {}
        for amount, formula in FORMULAS.items():
            found[formula] = fields[formula]
            try:
                values = formula_values(fields["input_recipe"], axes, workload.uuid)
                found[amount] = evaluate(fields[formula], values)
            except (InputError, KeyError) as error:
                if amount in own:
                    said = ("axes of a workload with sequences", str(error))
                    if isinstance(error, FormulaError):
                        said = (error.expected, error.found)
                    raise self._bindings.error(definition.name, workload.uuid, (amount,), *said) from None
                # A suite's formula may be about more than axes, which this workload has not.
                found[formula] = fallbacks[formula]
                found[amount] = _evaluated(definition, found[formula], axes)
        return found


FORMULAS = {"flops": "flops_formula", "bytes": "bytes_formula"}


def _evaluated(definition: Definition, formula: str, axes: Mapping[str, int]) -> int:
    """A default formula's value; its axes' names may be none that a formula can hold."""
    try:
        return evaluate(formula, axes)
    except FormulaError:
        shapes = definition.output_shapes(axes)
        sizes = ((math.prod(shapes[name] or ()), tensor.dtype.bits) for name, tensor in definition.outputs.items())
        return sum(elements * bits // 8 for elements, bits in sizes)
