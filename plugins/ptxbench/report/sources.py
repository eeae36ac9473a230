"""What a report is made of: run folders, and JSON reports that were written earlier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from ptxbench.agent import RunStore, resolve_run
from ptxbench.cases import find_root
from ptxbench.errors import InputError
from ptxbench.plain import visible
from ptxbench.records.base import first_fault
from ptxbench.report.document import RunReport

MOST_TRAJECTORIES = 20_000
"""Planned in one report. Resampling so many takes half a minute."""
MOST_PLANNED = 1_000_000
"""Turns planned in one report: each is a mark of a figure, whether or not it happened."""


class Source(NamedTuple):
    """One run, however it was given."""

    name: str
    """Unique among the sources that were loaded together."""
    report: RunReport
    run: RunStore | None
    """Kernels, prompts and replies; None for a JSON report, which holds none."""
    notes: tuple[str, ...] = ()
    """What the reader should know of the source, such as damaged turns that were left out."""


def load(paths: Sequence[str | Path], root: Path | None = None) -> tuple[Source, ...]:
    """Read runs (by name or path) and JSON reports (by path), in the order given.

    ``root`` is the checkout that names of runs and suites are looked up in; by default that of the working directory.
    Raises InputError for what is neither a run nor a report.
    """
    checkout = root if root is not None else find_root(Path.cwd())
    sources = [_load(checkout, str(path)) for path in paths]
    names = _unique([source.name for source in sources])
    return tuple(source._replace(name=name) for source, name in zip(sources, names, strict=True))


def _load(root: Path, given: str) -> Source:
    from ptxbench.report.run_report import report_of_run

    path = Path(given)
    if path.is_file():
        return Source(path.stem, read_report(path), None)
    run = RunStore.read(path if path.is_dir() else resolve_run(root, given))
    try:
        found = report_of_run(run, root)
    except ValidationError as error:
        raise InputError(
            f"{run.folder}: expected turns that are one run together, found {first_fault(error)}; restore the folder"
        ) from error
    _refuse_endless(run.folder, found.report)
    return Source(run.name, found.report, run, tuple(map(visible, found.notes)))


def read_report(path: Path) -> RunReport:
    """A JSON report. Raises InputError for a file that is none, also for one of a later version."""
    try:
        report = RunReport.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path}: expected a JSON report that can be read, found: {error.strerror}") from error
    except ValidationError as error:
        raise InputError(
            f"{path}: expected a JSON report as --ptx-json writes it, found {first_fault(error)}; "
            "write it again with this version, or read it with the one that wrote it"
        ) from error
    _refuse_endless(path, report)
    return report


def _refuse_endless(place: Path, report: RunReport) -> None:
    """Raises InputError for a plan that nobody carried out: figures and bootstrap go through every planned turn."""
    trajectories = sum(cell.trajectories for cell in report.cells)
    turns = sum(cell.trajectories * cell.turns_per_trajectory for cell in report.cells)
    for what, found, most in (
        ("trajectories", trajectories, MOST_TRAJECTORIES),
        ("trajectories x turns_per_trajectory", turns, MOST_PLANNED),
    ):
        if found > most:
            raise InputError(
                f"{place}: expected cells of at most {most:,} {what} together, found {found:,}; report fewer runs or "
                "cells at once"
            )


def _unique(names: Iterable[str]) -> list[str]:
    """Names with a number behind those that came before."""
    taken: dict[str, None] = {}
    for name in names:
        number, candidate = 2, name
        while candidate in taken:
            number, candidate = number + 1, f"{name} ({number})"
        taken[candidate] = None
    return list(taken)
