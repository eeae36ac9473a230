"""The report as JSON: cells, and every turn with what its numbers are recomputed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ptxbench.errors import InputError
from ptxbench.files import write_whole
from ptxbench.records import TrajectoryEnd, TurnKey, TurnRecord
from ptxbench.report.calls import calls_of
from ptxbench.report.cell import CellKey, CellPlan
from ptxbench.report.document import Bootstrap, EndRow, RunReport
from ptxbench.report.environment import environment_of
from ptxbench.report.summary import summarize, unique_records
from ptxbench.report.turn_rows import FindWork, turn_row
from ptxbench.verdict.intervals import LEVEL, RESAMPLES, SEED

BOOTSTRAP = Bootstrap(resamples=RESAMPLES, level=LEVEL, seed=SEED)


def build_report(
    records: Iterable[TurnRecord],
    planned: Mapping[CellKey, CellPlan] | None = None,
    ends: Iterable[TrajectoryEnd] = (),
    *,
    unselected: Iterable[TurnKey] = (),
    work: FindWork | None = None,
    suites: Mapping[str, str] | None = None,
) -> RunReport:
    """Return the report of these turns. Arguments up to ``unselected``, and errors, are those of ``summarize``.

    ``work`` finds the work of a turn's case; without it there is no roofline. ``suites`` are the names and hashes of
    the suites that the turns are of.
    """
    rows = unique_records(records)
    ended = sorted(ends, key=lambda end: (end.key.model, end.key.arch, end.key.case, end.key.variant, str(end.key)))
    left_out = sorted(
        unselected, key=lambda key: (key.model, key.arch, key.case, key.variant, key.trajectory, key.turn)
    )
    return RunReport(
        cells=summarize(rows, planned, ended, left_out),
        turns=tuple(turn_row(row, work(row) if work is not None else None) for row in rows),
        ends=tuple(EndRow(key=end.key, reason=end.reason, message=end.message) for end in ended),
        unselected=tuple(left_out),
        calls=calls_of(rows),
        environment=environment_of(rows, suites),
        bootstrap=BOOTSTRAP,
    )


def write_report(path: Path, report: RunReport) -> None:
    """Write the report to ``path``, whole or not at all, creating its folder. Raises InputError when it cannot."""
    data = (report.model_dump_json(indent=1) + "\n").encode()
    try:
        write_whole(path, data)
    except OSError as error:
        raise InputError(
            f"{path}: expected a file that the report can be written to, found: {error.strerror or error}; "
            "choose a path in a folder that you may write to"
        ) from error
