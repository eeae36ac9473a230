"""A folder of the public FlashInfer-Trace layout as a whole: definitions, workloads, solutions, and what they say of
each other. The results under ``traces/`` are left alone: they are somebody's measurements, not input.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ptxbench.errors import InputError
from ptxbench.trace.collection import WorkloadLine, read_workloads
from ptxbench.trace.definition import Definition
from ptxbench.trace.document import Document, read_json
from ptxbench.trace.faults import did_you_mean
from ptxbench.trace.fitting import check_fit
from ptxbench.trace.links import files_below
from ptxbench.trace.solution import Solution

SOL_FILES = ("definition.json", "workload.jsonl")
"""What a problem folder of SOL-ExecBench holds."""


class DefinitionFile(NamedTuple):
    """A definition and the file that it was read from."""

    document: Document
    definition: Definition


class SolutionFile(NamedTuple):
    """A solution and the file that it was read from."""

    document: Document
    solution: Solution


class TraceSet(NamedTuple):
    """One collection."""

    root: Path
    definitions: dict[str, DefinitionFile]
    """By name, in the order of their files."""
    workloads: dict[str, tuple[WorkloadLine, ...]]
    """By definition, in the order of their files and lines; each fits its definition. No blob was looked at."""
    empty: tuple[Path, ...]
    """Files that should hold workloads and hold none."""


def read_trace_set(root: Path) -> TraceSet:
    """Read ``definitions/**/*.json`` and ``workloads/**/*.jsonl``.

    Raises:
        InputError: no such folder, or none of this layout; a file breaks its schema; a definition is there twice; a
            workload is of no definition, does not fit its own, or has a uuid that another has. With file and field.
    """
    _expect_layout(root)
    definitions: dict[str, DefinitionFile] = {}
    for path in files_below(root, "definitions", "*.json"):
        document = read_json(path)
        definition = document.parse(Definition)
        if definition.name in definitions:
            first = definitions[definition.name].document.path
            raise document.error(("name",), "each definition once", f"{definition.name!r} again after {first}")
        definitions[definition.name] = DefinitionFile(document, definition)
    return TraceSet(root, definitions, *_workloads(root, definitions))


def _expect_layout(root: Path) -> None:
    if not root.is_dir():
        raise InputError(f"{root}: expected the folder of a FlashInfer-Trace collection, found none; check the path")
    if (root / "definitions").is_dir():
        return
    if any(True for pattern in ("", "*/", "*/*/") for _ in root.glob(f"{pattern}{SOL_FILES[0]}")):
        raise InputError(
            f"{root}: expected a FlashInfer-Trace collection, found problems of SOL-ExecBench; convert them first: "
            f"ptxbench convert {root} --into DIR"
        )
    found = ", ".join(sorted(path.name for path in root.iterdir())[:5]) or "nothing"
    raise InputError(
        f"{root}: expected a FlashInfer-Trace collection, with folders definitions and workloads; found {found}; "
        "check the path (docs/trace-set.md describes the layout)"
    )


def _workloads(
    root: Path, definitions: dict[str, DefinitionFile]
) -> tuple[dict[str, tuple[WorkloadLine, ...]], tuple[Path, ...]]:
    """The workloads by definition, and the files without any."""
    found: dict[str, tuple[WorkloadLine, ...]] = {}
    seen: dict[tuple[str, str], Path] = {}
    empty: list[Path] = []
    for path in files_below(root, "workloads", "*.jsonl"):
        lines = read_workloads(path)
        if not lines:
            empty.append(path)
        for line in lines:
            name, workload = line.trace.definition, line.trace.workload
            if name not in definitions:
                hint = did_you_mean(name, tuple(definitions))
                expected = "the name of a definition in the collection"
                raise line.document.error(("definition",), expected, f"{name!r}.{hint}".removesuffix("."))
            first = seen.setdefault((name, workload.uuid), path)
            if first != path:
                raise line.document.error(
                    ("workload", "uuid"), "each uuid once", f"{workload.uuid!r} again, of {first}"
                )
            check_fit(line.document, definitions[name].definition, workload)
            found[name] = (*found.get(name, ()), line)
    return found, tuple(empty)


def read_solutions(root: Path, definition: str | None = None) -> tuple[SolutionFile, ...]:
    """Read ``solutions/**/*.json``, in the order of their files; of one definition, if it is named.

    Raises:
        InputError: a file breaks its schema, or a solution's name is there twice.
    """
    seen: dict[str, Path] = {}
    found: list[SolutionFile] = []
    for path in files_below(root, "solutions", "*.json"):
        document = read_json(path)
        solution = document.parse(Solution)
        if solution.name in seen:
            raise document.error(
                ("name",), "each solution once", f"{solution.name!r} again after {seen[solution.name]}"
            )
        seen[solution.name] = path
        if definition in (None, solution.definition):
            found.append(SolutionFile(document, solution))
    return tuple(found)


def refuse_shared_names(sets: tuple[TraceSet, ...]) -> None:
    """Raises FileError where two collections define the same name: whose it is could not be told."""
    first: dict[str, Path] = {}
    for trace_set in sets:
        for name, (document, _) in trace_set.definitions.items():
            if name in first:
                found = f"{name!r} again after {first[name]}"
                advice = "leave one of the collections out, or rename the definition."
                raise document.error(("name",), "each definition once in all collections", found, advice)
            first[name] = document.path
