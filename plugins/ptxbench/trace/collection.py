"""Reading and writing the files of a FlashInfer-Trace collection.

Layout: ``definitions/<op_type>/<name>.json``, ``workloads/<op_type>/<definition>.jsonl`` (workload traces),
``solutions/**/<name>.json``, ``traces/**/*.jsonl``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from ptxbench.trace.definition import Definition
from ptxbench.trace.document import Document, read_json, read_jsonl
from ptxbench.trace.solution import Solution
from ptxbench.trace.trace import Trace


class WorkloadLine(NamedTuple):
    """One line of a workload file."""

    document: Document
    trace: Trace


def load_definition(path: Path) -> Definition:
    """Read one definition. Raises InputError (file, line, field, expected, found) when it breaks the schema."""
    return read_json(path).parse(Definition)


def load_solution(path: Path) -> Solution:
    """Read one solution. Raises InputError as ``load_definition``."""
    return read_json(path).parse(Solution)


def load_traces(path: Path) -> tuple[Trace, ...]:
    """Read a file of one trace per line. Raises InputError as ``load_definition``."""
    return tuple(document.parse(Trace) for document in read_jsonl(path))


def load_workloads(path: Path) -> tuple[Trace, ...]:
    """Read a file of one workload trace per line; the workload is ``trace.workload``. Raises as ``read_workloads``."""
    return tuple(line.trace for line in read_workloads(path))


def read_workloads(path: Path) -> tuple[WorkloadLine, ...]:
    """The lines of a workload file, each with the document that can name its places.

    Raises:
        InputError: as ``load_definition``, or a line holds a result, names another definition than the lines
            before it, or repeats a uuid.
    """
    found: list[WorkloadLine] = []
    lines: dict[str, int | None] = {}
    for document in read_jsonl(path):
        trace = document.parse(Trace)
        if not trace.is_workload:
            field = "solution" if trace.solution is not None else "evaluation"
            raise document.error((field,), "null, as in a workload trace", "a result")
        if found and trace.definition != found[0].trace.definition:
            raise document.error(
                ("definition",), f"{found[0].trace.definition!r}, as in the lines before", repr(trace.definition)
            )
        uuid, line = trace.workload.uuid, document.locate()[()]
        if uuid in lines:
            raise document.error(("workload", "uuid"), "each uuid once", f"{uuid!r} again after line {lines[uuid]}")
        lines[uuid] = line
        found.append(WorkloadLine(document, trace))
    return tuple(found)


def save_definition(definition: Definition, path: Path) -> None:
    """Write one definition, replacing the file in one step; folders are made."""
    _write(path, f"{definition.model_dump_json(indent=2)}\n")


def save_solution(solution: Solution, path: Path) -> None:
    """Write one solution, as ``save_definition``."""
    _write(path, f"{solution.model_dump_json(indent=2)}\n")


def save_traces(traces: Iterable[Trace], path: Path) -> None:
    """Write one trace per line, as ``save_definition``."""
    _write(path, _lines(traces))


def save_workloads(traces: Iterable[Trace], path: Path) -> None:
    """Write workload traces, one per line, as ``save_definition``."""
    _write(path, _lines(traces))


def _lines(models: Iterable[BaseModel]) -> str:
    return "".join(f"{model.model_dump_json()}\n" for model in models)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
