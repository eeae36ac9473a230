"""Problems of SOL-ExecBench as a FlashInfer-Trace collection."""

from __future__ import annotations

import posixpath
import shutil
from pathlib import Path
from typing import NamedTuple

from ptxbench.cases.bindings import CollectionBinding, save_bindings
from ptxbench.cases.sol_execbench import DoesNotFitError, SolProblem, SolWorkload, problem_folders, read_problem
from ptxbench.errors import InputError
from ptxbench.report.new_folder import expect_new, new_folder
from ptxbench.trace.collection import save_definition, save_workloads
from ptxbench.trace.fitting import check_blob
from ptxbench.trace.trace import Trace
from ptxbench.trace.workload import SafetensorsInput


class Converted(NamedTuple):
    """What was written."""

    definitions: int
    workloads: int
    left_out: tuple[str, ...]
    """Problems that our schema cannot express, with the reason."""


def convert_problems(source: Path, into: Path) -> Converted:
    """Write the problems in ``source`` to a new collection, ``into``; what has no place there is in ``ptxbench.yaml``.

    Raises InputError for a folder without problems, a file that breaks the format, a file that a workload names and
    that is not there or not what it wants, two problems of one name or two files of one path, and a target that cannot
    be written or holds something already. Nothing is written then.
    """
    expect_new(into)
    problems, left_out = _read(source)
    if not problems:
        return Converted(0, 0, tuple(left_out))
    blobs, bindings = _blobs(problems, source), _bindings(problems)
    with new_folder(into) as draft:
        for problem in problems.values():
            _write(problem, draft)
        for path, blob in blobs.items():
            target = draft / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(blob, target)
        save_bindings(bindings, draft)
    return Converted(len(problems), sum(len(problem.workloads) for problem in problems.values()), tuple(left_out))


def _read(source: Path) -> tuple[dict[str, SolProblem], list[str]]:
    """The problems by name, and what is left out."""
    problems: dict[str, SolProblem] = {}
    left_out: list[str] = []
    for folder in problem_folders(source):
        try:
            problem = read_problem(folder)
        except DoesNotFitError as error:
            left_out.append(f"{folder} is left out: {error}")
            continue
        first = problems.setdefault(problem.definition.name, problem)
        if first is not problem:
            raise InputError(
                f"{folder}: expected another name than {problem.definition.name!r}, found it again after "
                f"{first.folder}; convert them to different folders"
            )
    return problems, left_out


def _write(problem: SolProblem, draft: Path) -> None:
    definition = problem.definition
    save_definition(definition, draft / "definitions" / definition.op_type / f"{definition.name}.json")
    lines = [Trace(definition=definition.name, workload=found.workload) for found in problem.workloads]
    save_workloads(lines, draft / "workloads" / definition.op_type / f"{definition.name}.jsonl")


def _blobs(problems: dict[str, SolProblem], source: Path) -> dict[str, Path]:
    """Path in the collection -> the file, of every safetensors input."""
    found: dict[str, Path] = {}
    for problem in problems.values():
        for workload in problem.workloads:
            for name, blob in workload.workload.inputs.items():
                if isinstance(blob, SafetensorsInput):
                    file = _blob(problem, workload, name, blob, source)
                    first = found.setdefault(posixpath.normpath(blob.path), file)
                    if first.resolve() != file.resolve():
                        expected = "a path that no other problem has another file at"
                        raise workload.document.error(("inputs", name, "path"), expected, f"{file} after {first}")
    return found


def _blob(problem: SolProblem, workload: SolWorkload, name: str, blob: SafetensorsInput, source: Path) -> Path:
    """The file where the problem may mean it: beside the problem, or in a folder above."""
    at = ("inputs", name)
    for start in (problem.folder, *problem.folder.parents):
        if (start / blob.path).exists():
            definition, axes = problem.definition, workload.workload.axes
            wanted = (definition.inputs[name].dtype, definition.input_shapes(axes)[name])
            check_blob(workload.document, source, start / blob.path, blob, wanted, at)
            return start / blob.path
        if start == source:
            break
    advice = "restore the file, or correct the workload."
    expected = f"a file in {problem.folder} or above it"
    raise workload.document.error((*at, "path"), expected, f"none of the name {blob.path}", advice)


def _bindings(problems: dict[str, SolProblem]) -> list[CollectionBinding]:
    """What the public files have no place for."""
    return [
        CollectionBinding(definition=name, workload=found.workload.uuid, tolerance=found.tolerance, made=found.made)
        for name, problem in problems.items()
        for found in problem.workloads
        if found.tolerance or found.made
    ]
