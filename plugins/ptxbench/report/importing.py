"""Getting a run back from the collection that it was exported to."""

from __future__ import annotations

from pathlib import Path

from ptxbench.agent import RunStore, resolve_run
from ptxbench.agent.files import write_record
from ptxbench.agent.run_file import RUN_FILE
from ptxbench.agent.turn_files import DamagedTurn, StoredTurn, to_json
from ptxbench.errors import InputError
from ptxbench.report.exporting import RUNS
from ptxbench.report.public_results import trace_of
from ptxbench.trace.collection import load_traces
from ptxbench.trace.links import files_below
from ptxbench.trace.trace import Trace
from ptxbench.trace.trace_set import read_trace_set
from ptxbench.trace.workload import Workload


def import_run(root: Path, source: Path, name: str | None = None) -> Path:
    """Write the run that an export holds to a run folder of the checkout ``root``. Returns the folder.

    ``name`` is a name or a path, as ``--run`` takes it; None: the run's own. Results that somebody else measured are no
    evidence and cannot be judged, so a collection without records of ours is refused.

    Raises InputError for a folder that is no export, one whose records are damaged or whose traces are not what its
    records say, and a run folder that holds something already.
    """
    exported = _only_run(source)
    target = resolve_run(root, name or exported.name)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"--run {name or exported.name}: expected a new run, found {target}; choose another name")
    entries = list(exported.entries())
    damaged = [entry for entry in entries if isinstance(entry, DamagedTurn)]
    if damaged:
        raise InputError(
            f"{damaged[0].path}: expected a whole record, found: {damaged[0].reason}; export the run again"
        )
    turns = [entry for entry in entries if isinstance(entry, StoredTurn)]
    _check_traces(source, exported, turns)
    copy = RunStore(target, exported.identity)
    write_record(target / RUN_FILE, to_json(exported.identity))
    for turn in turns:
        copy.save(turn.record, turn.candidate)
    for end in exported.ends():
        copy.save_end(end)
    for fault in exported.faults():
        copy.save_fault(fault)
    return target


def _only_run(source: Path) -> RunStore:
    found = sorted(path.parent for path in (source / RUNS).glob(f"*/{RUN_FILE}"))
    if len(found) != 1:
        raise InputError(
            f"{source}: expected a collection that `ptxbench export` wrote, with one run under {RUNS}; found "
            f"{len(found)}; results that others measured cannot be judged here: run its solutions instead, with "
            f"--trace-set={source} --model solutions"
        )
    return RunStore.read(found[0])


def _check_traces(source: Path, exported: RunStore, turns: list[StoredTurn]) -> None:
    """Raises InputError where the public traces are not those of the records: one of the two was changed."""
    trace_set = read_trace_set(source)
    workloads: dict[tuple[str, str], Workload] = {
        (name, line.trace.workload.uuid): line.trace.workload
        for name, lines in trace_set.workloads.items()
        for line in lines
    }
    published: dict[str | None, Trace] = {}
    for path in files_below(source, "traces", "*.jsonl"):
        for trace in load_traces(path):
            if published.setdefault(trace.solution, trace) is not trace:
                raise InputError(
                    f"{path}: expected one result of each turn, found {trace.solution} again; export the run again"
                )
    for turn in turns:
        record = turn.record
        workload = workloads.get((record.definition, record.workload_uuid))
        if workload is None:
            raise InputError(
                f"{source}: expected the workload {record.workload_uuid} of {record.definition}, of which it holds "
                "results, found none under workloads; export the run again"
            )
        wanted = trace_of(record, workload, exported.identity.created_at)
        if _text(published.pop(str(record.key), None)) != _text(wanted):
            raise InputError(
                f"{source}/traces: expected the result of {record.key} as its record has it, found another or none; "
                "export the run again"
            )
    if published:
        raise InputError(
            f"{source}/traces: expected results of the exported turns alone, found one of {next(iter(published))}; "
            "export the run again"
        )


def _text(trace: Trace | None) -> str:
    """A result as its file has it: errors that are NaN equal nothing as numbers, not even themselves."""
    return "" if trace is None else trace.model_dump_json()
