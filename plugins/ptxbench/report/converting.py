"""Problems of SOL-ExecBench as a FlashInfer-Trace collection."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

from ptxbench.cases.bindings import BINDINGS_FILE
from ptxbench.cases.sol_execbench import DoesNotFitError, SolProblem, problem_folders, read_problem
from ptxbench.errors import InputError
from ptxbench.trace.collection import save_definition, save_workloads
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
    that is not there, two problems of one name, and a target that cannot be written or holds something already.
    """
    if into.exists() and (not into.is_dir() or any(into.iterdir())):
        raise InputError(f"--into {into}: expected a new or empty folder, found something in its place; choose another")
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
    try:
        for problem in problems.values():
            _write(problem, source, into)
        _write_bindings(problems, into)
    except OSError as error:
        raise InputError(
            f"--into {into}: expected a folder that can be written, found: {error.strerror or error}; choose another"
        ) from error
    return Converted(len(problems), sum(len(problem.workloads) for problem in problems.values()), tuple(left_out))


def _write(problem: SolProblem, source: Path, into: Path) -> None:
    definition = problem.definition
    save_definition(definition, into / "definitions" / definition.op_type / f"{definition.name}.json")
    lines = [Trace(definition=definition.name, workload=found.workload) for found in problem.workloads]
    save_workloads(lines, into / "workloads" / definition.op_type / f"{definition.name}.jsonl")
    for found in problem.workloads:
        for name, blob in found.workload.inputs.items():
            if isinstance(blob, SafetensorsInput):
                _copy(blob.path, f"{found.workload.uuid}: input {name}", problem.folder, source, into)


def _copy(path: str, place: str, folder: Path, source: Path, into: Path) -> None:
    """Copy a blob from where the problem may mean it: beside itself, or in a folder above."""
    for start in (folder, *folder.parents):
        if (start / path).is_file():
            target = into / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(start / path, target)
            return
        if start == source:
            break
    raise InputError(f"{folder}: workload {place}: expected the file {path} in it or above it, found none; restore it")


def _write_bindings(problems: dict[str, SolProblem], into: Path) -> None:
    """What the public files have no place for. JSON is YAML."""
    bindings: list[str] = []
    for name, problem in problems.items():
        for workload, tolerance, made in problem.workloads:
            own = {"tolerance": tolerance, "made": made}
            given = {key: value.model_dump(mode="json") for key, value in own.items() if value is not None}
            if given:
                bindings.append(json.dumps({"definition": name, "workload": workload.uuid, **given}))
    if bindings:
        lines = ["schema_version: 1", "bindings:", *(f"  - {binding}" for binding in bindings)]
        (into / BINDINGS_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")
