"""The report of a run folder: what is stored there, by the verdicts that are stored. Nothing is judged or written."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ptxbench.agent import RunStore
from ptxbench.agent.damaged import damaged_records
from ptxbench.agent.run_cases import RunCases
from ptxbench.agent.store import last_turns
from ptxbench.agent.turn_files import DamagedTurn
from ptxbench.errors import InputError
from ptxbench.records import TurnRecord
from ptxbench.report.document import RunReport
from ptxbench.report.json_report import build_report
from ptxbench.report.summary import plans_of
from ptxbench.report.turn_rows import Work


class Found(NamedTuple):
    """The report, and what the reader should know of the folder."""

    report: RunReport
    notes: tuple[str, ...]


def report_of_run(run: RunStore, root: Path) -> Found:
    """Report a run; ``root`` is the checkout with its suites. Raises InputError for a run without finished turns."""
    entries = list(run.entries())
    records = [entry.record for entry in entries if not isinstance(entry, DamagedTurn)]
    damaged = [entry for entry in entries if isinstance(entry, DamagedTurn)]
    faults = list(run.faults())
    if not records and not faults:
        raise InputError(f"{run.folder}: expected a run with finished turns, found none; run the benchmark first")
    lost = list(damaged_records(run, damaged, [*records, *faults]))
    faults += lost
    finished = {record.key for record in (*records, *lost)}
    # A process that is killed while it stores a turn leaves an end behind that the turn has overtaken.
    ends = [end for end in run.ends() if end.key not in finished]
    keys = [*(record.key for record in (*records, *faults)), *(end.key for end in ends)]
    report = build_report(
        [*records, *faults],
        plans_of(last_turns(run, keys)),
        ends,
        work=_Works(RunCases(root), tuple(run.identity.suites)).find,
        suites=run.identity.suites,
    )
    notes = tuple(f"{turn.path}: damaged, so left out of N: {turn.reason}" for turn in damaged)
    return Found(report, notes)


class _Works:
    """Workloads of a run's turns, looked up once for each case."""

    def __init__(self, cases: RunCases, suites: tuple[str, ...]) -> None:
        self._cases = cases
        self._suites = suites
        self._found: dict[tuple[str, str], Work | None] = {}

    def find(self, record: TurnRecord) -> Work | None:
        """The work of a turn's case; None where the checkout does not know it."""
        key = (record.key.case, record.key.arch)
        if key not in self._found:
            try:
                self._found[key] = Work.of(self._cases.find(self._suites, record))
            except InputError:
                # A collection that nobody named, or another checkout's suite: everything else can be reported.
                self._found[key] = None
        return self._found[key]
