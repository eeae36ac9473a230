"""Judging stored turns again: the same evidence, today's rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ptxbench.agent.damaged import damaged_records
from ptxbench.agent.run_cases import RunCases
from ptxbench.agent.run_names import resolve_run
from ptxbench.agent.store import RunStore, last_turns
from ptxbench.agent.turn_files import DamagedTurn, read_record
from ptxbench.errors import InputError
from ptxbench.records import TrajectoryEnd, TurnKey, TurnRecord, Verdict
from ptxbench.verdict import judge


class Rejudged(NamedTuple):
    """A turn with its new verdict."""

    record: TurnRecord
    changes: tuple[str, ...]
    """``field: before -> now`` for everything in the verdict that is not as it was."""


class Rejudgement(NamedTuple):
    """What some runs and record files hold, judged again, with what their rates are over."""

    turns: list[Rejudged]
    damaged: list[DamagedTurn]
    excluded: list[TurnRecord]
    """Turns that an infrastructure fault, or a damaged record, keeps from being judged."""
    ends: list[TrajectoryEnd]
    """Of trajectories with fewer turns than they were given, each once."""
    last_turns: list[TurnKey]
    """The last turn that each trajectory of a run was given, whether or not it happened."""
    single: list[TurnKey]
    """Turns that were named one by one: nothing is said of those beside them."""


def rejudge(root: Path, names: Sequence[str], trace_sets: Sequence[Path] = ()) -> Rejudgement:
    """Judge every turn of the named runs and record files. Nothing is written.

    Raises InputError for a run that does not exist or is empty, a file that is no record, or a turn whose case is in no
    suite of the checkout ``root`` and in none of the collections ``trace_sets``.
    """
    cases = RunCases(root, trace_sets)
    found = Rejudgement([], [], [], [], [], [])
    for name in names:
        path = Path(name)
        if path.is_file():
            record = read_record(path)
            store = RunStore.read(_run_folder(path))
            if store.record(record.key) != record:
                raise InputError(f"{path}: expected the record of the turn whose place it has, found {record.key}'s")
            found.turns.append(_judged(record, cases, _suites(store)))
            found.single.append(record.key)
        else:
            _add_run(found, RunStore.read(path if path.is_dir() else resolve_run(root, name)), cases)
    return found._replace(ends=list({end.key.trajectory_id: end for end in found.ends}.values()))


def _add_run(found: Rejudgement, store: RunStore, cases: RunCases) -> None:
    """Everything that a run holds. Raises InputError where that is nothing."""
    entries = list(store.entries())
    if not entries:
        raise InputError(f"{store.folder}: expected a run with finished turns, found none")
    records = [entry.record for entry in entries if not isinstance(entry, DamagedTurn)]
    damaged = [entry for entry in entries if isinstance(entry, DamagedTurn)]
    faults = list(store.faults())
    lost = list(damaged_records(store, damaged, [*records, *faults]))
    faults += lost
    finished = {record.key for record in (*records, *lost)}
    # A process that is killed while it stores a turn leaves an end behind that the turn has overtaken.
    ends = [end for end in store.ends() if end.key not in finished]
    found.turns.extend(_judged(record, cases, _suites(store)) for record in records)
    found.damaged.extend(damaged)
    found.excluded.extend(faults)
    found.ends.extend(ends)
    keys = [*(record.key for record in (*records, *faults)), *(end.key for end in ends)]
    found.last_turns.extend(last_turns(store, keys))


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


def _judged(record: TurnRecord, cases: RunCases, suites: Sequence[str]) -> Rejudged:
    if record.build is None:
        # The model's answer held no kernel, or the result is somebody else's: no rule could see anything differently.
        return Rejudged(record, ())
    verdict = judge(cases.find(suites, record), record.build, record.evidence)
    return Rejudged(record.model_copy(update={"verdict": verdict}), _changes(record.verdict, verdict))


def _changes(before: Verdict, now: Verdict) -> tuple[str, ...]:
    # A field that is newer than the stored verdict says more, and nothing else.
    known = [name for name in Verdict.model_fields if name in before.model_fields_set]
    fields = [name for name in known if getattr(before, name) != getattr(now, name)]
    return tuple(f"{name}: {getattr(before, name)} -> {getattr(now, name)}" for name in fields)
