"""A run as a FlashInfer-Trace collection, which other tools read, and from which PTXBench gets the run back.

Layout: the public one, and beside it ``ptxbench/runs/<name>/`` with the run's records, which other tools pass over.
What was said to language models and what they said stays at home: records are exported without their exchanges.
"""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path
from typing import NamedTuple

from ptxbench.agent import RunStore, resolve_run
from ptxbench.agent.files import write_record
from ptxbench.agent.run_cases import RunCases
from ptxbench.agent.run_file import RUN_FILE
from ptxbench.agent.turn_files import DamagedTurn, to_json
from ptxbench.cases.bindings import save_bindings
from ptxbench.cases.case import Case
from ptxbench.cases.collection_case import CollectionCase
from ptxbench.cases.trace_sets import missing_bindings
from ptxbench.errors import InputError
from ptxbench.records import Candidate, TurnRecord
from ptxbench.report.new_folder import new_folder
from ptxbench.report.public_results import solution_of, trace_of
from ptxbench.trace.collection import save_definition, save_solution, save_traces, save_workloads
from ptxbench.trace.trace import Trace
from ptxbench.trace.workload import SafetensorsInput, Workload
from ptxbench.verdict import judge

RUNS = Path("ptxbench", "runs")
"""Where an export keeps the run that it is of."""


class Exported(NamedTuple):
    """What was written."""

    definitions: int
    workloads: int
    solutions: int
    traces: int
    left_out: tuple[str, ...]
    """Turns without a trace, with the reason."""


def export_run(root: Path, run: str, into: Path, trace_sets: tuple[Path, ...] = ()) -> Exported:
    """Write a run to a new collection in ``into``, judged by today's rules.

    Raises InputError for a run that does not exist, a turn whose case is in no suite of the checkout ``root`` and no
    collection of ``trace_sets``, two collections with different files at one path, and a folder that cannot be written
    or holds something already. Nothing is written then.
    """
    path = Path(run)
    store = RunStore.read(path if path.is_dir() else resolve_run(root, run))
    with new_folder(into) as draft:
        export = _Export(store, RunCases(root, trace_sets), draft)
        export.write()
        save_bindings(missing_bindings(root, draft, export.cases), draft)
        return export.exported()


class _Export:
    """One export."""

    def __init__(self, store: RunStore, cases: RunCases, into: Path) -> None:
        self._store = store
        self._known = cases
        self._into = into
        self._copy = RunStore(into / RUNS / store.name, store.identity)
        self._workloads: dict[tuple[str, str], dict[str, Workload]] = {}
        self._traces: dict[tuple[str, str, str], list[Trace]] = {}
        self._blobs: dict[Path, Path] = {}
        """Where it is copied to -> where it is, of each file of captured inputs."""
        self._solutions = 0
        self._left_out: list[str] = []
        self.cases: list[CollectionCase] = []
        """Of collections, one for each workload."""

    def write(self) -> None:
        """Turn by turn, then what they share."""
        identity = self._store.identity.model_copy(update={"models": {}})
        write_record(self._copy.folder / RUN_FILE, to_json(identity))
        for entry in self._store.entries():
            if isinstance(entry, DamagedTurn):
                self._left_out.append(f"{entry.path}: it is damaged: {entry.reason}")
            else:
                self._turn(entry.record, entry.candidate)
        for end in self._store.ends():
            self._copy.save_end(end.model_copy(update={"exchange": None}))
        for fault in self._store.faults():
            self._copy.save_fault(fault.model_copy(update={"exchange": None, "follows": None}))
            self._left_out.append(f"{fault.key}: the machinery failed; it says nothing of the kernel")
        for (op_type, definition), workloads in self._workloads.items():
            lines = [Trace(definition=definition, workload=workload) for workload in workloads.values()]
            save_workloads(lines, self._into / "workloads" / op_type / f"{definition}.jsonl")
        for (author, op_type, definition), traces in self._traces.items():
            save_traces(traces, self._into / "traces" / author / op_type / f"{definition}.jsonl")

    def exported(self) -> Exported:
        """What was written."""
        return Exported(
            definitions=len(self._workloads),
            workloads=sum(map(len, self._workloads.values())),
            solutions=self._solutions,
            traces=sum(map(len, self._traces.values())),
            left_out=tuple(self._left_out),
        )

    def _turn(self, record: TurnRecord, candidate: Candidate | None) -> None:
        case = self._known.find(tuple(self._store.identity.suites), record)
        if record.build is not None:
            record = record.model_copy(update={"verdict": judge(case, record.build, record.evidence)})
        record = record.model_copy(update={"exchange": None, "follows": None})
        self._copy.save(record, candidate)
        self._case(case)
        if candidate is not None:
            solution = solution_of(record, candidate)
            folder = self._into / "solutions" / record.key.model / case.definition.op_type / record.definition
            save_solution(solution, folder / f"{solution.name}.json")
            self._solutions += 1
        trace = trace_of(record, case.workload, self._store.identity.created_at)
        if trace is None:
            outcome = record.verdict.outcome.value
            self._left_out.append(f"{record.key}: {outcome}, for which the schema has no status")
        else:
            key = (record.key.model, case.definition.op_type, record.definition)
            self._traces.setdefault(key, []).append(trace)

    def _case(self, case: Case) -> None:
        definition, workload = case.definition, case.workload
        known = self._workloads.setdefault((definition.op_type, definition.name), {})
        if not known:
            save_definition(definition, self._into / "definitions" / definition.op_type / f"{definition.name}.json")
        if workload.uuid in known:
            return
        known[workload.uuid] = workload
        if not isinstance(case, CollectionCase):
            return
        self.cases.append(case)
        for source in workload.inputs.values():
            if isinstance(source, SafetensorsInput):
                self._blob(Path(case.collection_root) / source.path, self._into / source.path)

    def _blob(self, blob: Path, target: Path) -> None:
        first = self._blobs.setdefault(target, blob)
        if first != blob and not filecmp.cmp(first, blob, shallow=False):
            raise InputError(
                f"{blob}: expected a path that no other collection of the run has another file at, found {first}; "
                "run the collections by themselves, and export each run"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(blob, target)
