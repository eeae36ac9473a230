"""Judging stored turns again: the same evidence, today's rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.agent.run_names import resolve_run
from ptxbench.agent.store import DamagedTurn, RunStore, read_record
from ptxbench.errors import InputError
from ptxbench.records import TurnRecord, Verdict
from ptxbench.verdict import judge

if TYPE_CHECKING:
    from ptxbench.cases import Case, Suite


class Rejudged(NamedTuple):
    """A turn with its new verdict."""

    record: TurnRecord
    changes: tuple[str, ...]
    """``field: before -> now`` for everything in the verdict that is not as it was."""


def rejudge(root: Path, names: Sequence[str]) -> list[Rejudged | DamagedTurn]:
    """Judge every turn of the named runs and record files; damaged turns of a run are named. Nothing is written.

    Raises InputError for a run that does not exist or is empty, a file that is no record, or a turn whose case is in no
    suite of the checkout ``root``.
    """
    cases = _Cases(root)
    return [
        entry if isinstance(entry, DamagedTurn) else _judged(entry, cases.find(suites, entry))
        for name in names
        for suites, entry in _entries(root, name)
    ]


class _Cases:
    """Cases by name, from the suites that a run names."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._load = cache(self._suite)

    def _suite(self, name: str) -> Suite:
        from ptxbench.cases import load_suite

        return load_suite(self._root, name)

    def find(self, suites: Sequence[str], record: TurnRecord) -> Case:
        """The case of a record."""
        for name in suites:
            for case in self._load(name).table:
                if (case.name, case.arch.name) == (record.key.case, record.key.arch):
                    return case
        raise InputError(
            f"turn {record.key}: expected the case {record.key.case} on {record.key.arch} in the suites "
            f"{', '.join(suites) or '(none)'} of this checkout, found none; judge it in the checkout it came from"
        )


def _entries(root: Path, name: str) -> Iterator[tuple[Sequence[str], TurnRecord | DamagedTurn]]:
    """Records with the suites that their case is in."""
    path = Path(name)
    if path.is_file():
        record = read_record(path)
        yield _suites(RunStore.read(_run_folder(path))), record
        return
    store = RunStore.read(path if path.is_dir() else resolve_run(root, name))
    entries = list(store.entries())
    if not entries:
        raise InputError(f"{store.folder}: expected a run with finished turns, found none")
    for entry in entries:
        yield _suites(store), entry if isinstance(entry, DamagedTurn) else entry.record


def _run_folder(path: Path) -> Path:
    """The run that a record file is of: it knows which suites there are. Raises InputError."""
    parents = path.absolute().parents
    if len(parents) < 3 or parents[1].name != "turns":
        raise InputError(
            f"{path}: expected a turn inside its run folder (turns/<trajectory>/turnN.json), found the file elsewhere; "
            "judge it where the run wrote it"
        )
    return parents[2]


def _suites(store: RunStore) -> Sequence[str]:
    return tuple(store.identity.suites)


def _judged(record: TurnRecord, case: Case) -> Rejudged:
    if record.build is None:
        # The model's answer held no kernel: there is nothing that a rule could see differently.
        return Rejudged(record, ())
    verdict = judge(case, record.build, record.evidence)
    return Rejudged(record.model_copy(update={"verdict": verdict}), _changes(record.verdict, verdict))


def _changes(before: Verdict, now: Verdict) -> tuple[str, ...]:
    fields = [name for name in Verdict.model_fields if getattr(before, name) != getattr(now, name)]
    return tuple(f"{name}: {getattr(before, name)} -> {getattr(now, name)}" for name in fields)
