"""A run on disk. Layout, stable names, all paths relative to the run folder:

``run.json``                        what the folder is a run of (``RunIdentity``)
``turns/<trajectory>/turn<N>.json`` one ``TurnRecord``; its source lies beside it as ``turn<N>.cu``
``turns/<trajectory>/end.json``     one ``TrajectoryEnd``, where the trajectory ended before its last turn
``replies/<turn>.json``             one ``PendingReply``: a model's reply whose turn is not finished
``replies/unused/``                 replies that were paid for, to prompts that are now others
``faults/<turn>.json``              turns that ended in an infrastructure fault; not finished, so retried
``aside/``                          damaged files, moved out of the way and redone
``agents/``                         working folders of coding agents, one per turn
``locks/``                          one lock file per trajectory; a lock dies with the process that held it
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from typing import Self

from ptxbench.agent.files import locked, open_lock, write_failure, write_record
from ptxbench.agent.identity import ModelTerms, RunIdentity, Session
from ptxbench.agent.run_file import join, read_identity, refuse_files, refuse_foreign
from ptxbench.agent.turn_files import DamagedTurn, StoredTurn, read, read_turn_in_place, remove, to_json
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.records import Candidate, PendingReply, TrajectoryEnd, TurnKey, TurnRecord

ASKED = "model"
"""``TurnRecord.origin`` of a source that a model was asked for in this very run; replayed replies cost nothing."""
IMPORTED = "imported"
"""``TurnRecord.origin`` of a result that somebody else measured and judged: there is no source, and no evidence."""
UNUSED = "unused"
"""Folder of paid replies that no turn is made of, within ``replies``."""


class RunStore:
    """The folder of one run. Safe for several threads and several processes."""

    def __init__(self, folder: Path, identity: RunIdentity) -> None:
        self.folder = folder
        self.identity = identity
        self._notes: list[str] = []
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls,
        folder: Path,
        suites: Mapping[str, str],
        turns: Mapping[str, int] | None = None,
        models: Mapping[str, ModelTerms] | None = None,
    ) -> Self:
        """Create the run, or resume it. The other arguments are what ``Session`` says.

        Raises InputError for a folder that is no run folder, cannot be written, or whose run has other suites, or asks
        one of the models otherwise.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            refuse_foreign(folder)
            refuse_files(folder)
            with locked(open_lock(folder / ".lock"), lambda: False):
                return cls(folder, join(folder, Session(suites, turns or {}, models or {})))
        except (InfrastructureError, OSError) as error:
            raise InputError(
                f"--run {folder}: expected a folder that can be written, found: {error}; choose another name or path"
            ) from error

    @classmethod
    def read(cls, folder: Path) -> Self:
        """An existing run, for reading. Raises InputError if there is none, or files lie where its folders belong."""
        identity = read_identity(folder)
        refuse_files(folder)
        return cls(folder, identity)

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.resolve().name

    @property
    def imported(self) -> str:
        """Name of the file with somebody else's results that the run is of; empty for a run of ours."""
        return self.identity.imported

    def turns_given(self, model: str) -> int | None:
        """Turns that each trajectory of a model was given; None for a run of a version that did not say."""
        return self.identity.turns.get(model)

    def take_notes(self) -> list[str]:
        """What the user should know and was not told yet, such as damaged files that were moved aside."""
        with self._lock:
            notes, self._notes = self._notes, []
        return notes

    def turn_keys(self) -> Sequence[TurnKey]:
        """Every stored, intact turn, sorted by trajectory and turn."""
        return [stored.record.key for stored in self.turns()]

    def turns(self) -> Iterator[StoredTurn]:
        """Every intact turn on disk, sorted by trajectory and turn."""
        return (entry for entry in self.entries() if isinstance(entry, StoredTurn))

    def entries(self) -> Iterator[StoredTurn | DamagedTurn]:
        """Every turn on disk, sorted by trajectory and turn. Damaged ones stay where they are."""
        for folder in sorted((self.folder / "turns").glob("*/")):
            for path in sorted(folder.glob("turn*.json"), key=lambda path: (len(path.name), path.name)):
                stored = read_turn_in_place(path)
                if stored is not None:
                    yield DamagedTurn(path, stored) if isinstance(stored, str) else stored

    def later(self, key: TurnKey) -> list[TurnKey]:
        """The stored, intact turns of a turn's trajectory that come after it, in order."""
        paths = self.turn_path(key).parent.glob("turn*.json")
        found = [stored.record.key for path in paths if isinstance(stored := read_turn_in_place(path), StoredTurn)]
        return sorted((other for other in found if other.turn > key.turn), key=lambda other: other.turn)

    def candidate(self, key: TurnKey) -> Candidate | None:
        """The candidate of a stored turn; None where the model's answer held none."""
        stored = read_turn_in_place(self.turn_path(key))
        return stored.candidate if isinstance(stored, StoredTurn) else None

    def record(self, key: TurnKey) -> TurnRecord | None:
        """The record of a stored, intact turn."""
        stored = read_turn_in_place(self.turn_path(key))
        return stored.record if isinstance(stored, StoredTurn) else None

    def turn_path(self, key: TurnKey) -> Path:
        """Where the record of a turn lies."""
        return self.folder / "turns" / key.trajectory_id / f"turn{key.turn}.json"

    def end_path(self, key: TurnKey) -> Path:
        """Where the end of a turn's trajectory lies."""
        return self.folder / "turns" / key.trajectory_id / "end.json"

    def reply_path(self, key: TurnKey) -> Path:
        """Where the reply of a turn lies until the turn is finished."""
        return self.folder / "replies" / f"{key}.json"

    def fault_path(self, key: TurnKey) -> Path:
        """Where the record of a turn that ended in an infrastructure fault lies."""
        return self.folder / "faults" / f"{key}.json"

    def load(self, key: TurnKey) -> StoredTurn | None:
        """A stored turn. A damaged one is moved aside with a note, and counts as not stored."""
        path = self.turn_path(key)
        stored = read_turn_in_place(path)
        if isinstance(stored, str):
            self._set_aside(path, stored)
            return None
        if stored is not None:
            self._forget_unfinished(key)  # whoever stored it may have been killed before
        return stored

    def load_fault(self, key: TurnKey) -> TurnRecord | None:
        """The record of a turn's last infrastructure fault, if it never finished; None where that is damaged."""
        return read(TurnRecord, self.fault_path(key))

    def save(self, record: TurnRecord, candidate: Candidate | None) -> None:
        """Store a finished turn, source first: a record on disk always has its source.

        Raises InfrastructureError("disk_full") if it cannot be written; everything stored before stays intact.
        """
        path = self.turn_path(record.key)
        if candidate is not None:
            write_record(path.with_suffix(".cu"), candidate.source.encode("utf-8", "surrogatepass"))
        write_record(path, to_json(record))
        self._forget_unfinished(record.key)

    def load_end(self, key: TurnKey) -> TrajectoryEnd | None:
        """How the turn's trajectory ended; None if it did not, or where that is damaged."""
        end = read(TrajectoryEnd, self.end_path(key))
        return end if end is not None and end.key.trajectory_id == key.trajectory_id else None

    def ends(self) -> Iterator[TrajectoryEnd]:
        """Every trajectory that ended early, sorted by trajectory."""
        for path in sorted((self.folder / "turns").glob("*/end.json")):
            end = read(TrajectoryEnd, path)
            if end is not None:
                yield end

    def save_end(self, end: TrajectoryEnd) -> None:
        """Store how a trajectory ended. Raises as ``save`` does. Earlier faults of turns beyond it are forgotten."""
        if self.load_end(end.key) != end:
            write_record(self.end_path(end.key), to_json(end))
        for path in self.fault_path(end.key).parent.glob(f"{escape(end.key.trajectory_id)}-turn*.json"):
            fault = read(TurnRecord, path)
            if fault is not None and fault.key.turn >= end.key.turn:
                remove(path)

    def load_reply(self, key: TurnKey) -> PendingReply | None:
        """The reply of an unfinished turn; None if there is none, or where it is damaged."""
        pending = read(PendingReply, self.reply_path(key))
        return pending if pending is not None and pending.key == key else None

    def pending_replies(self) -> Iterator[PendingReply]:
        """Every reply that was paid for and is part of no finished turn, sorted by its file's name."""
        for path in sorted((self.folder / "replies").rglob("*.json")):
            pending = read(PendingReply, path)
            # A process that is killed while it stores a turn leaves the turn's reply behind.
            left_over = path.parent.name != UNUSED and pending is not None and self.record(pending.key) is not None
            if pending is not None and not left_over:
                yield pending

    def save_reply(self, pending: PendingReply) -> None:
        """Store a reply that just came in; one that lies there already is kept as unused. Raises as ``save`` does."""
        path = self.reply_path(pending.key)
        unused = path.parent / UNUSED / f"{pending.key}.{time.time_ns()}.json"
        try:
            if path.exists():
                unused.parent.mkdir(exist_ok=True)
                path.rename(unused)
        except OSError as error:
            raise write_failure(unused, error) from error
        write_record(path, to_json(pending))

    def faults(self) -> Iterator[TurnRecord]:
        """Every turn that an infrastructure fault kept from finishing, sorted by its file's name."""
        for path in sorted((self.folder / "faults").glob("*.json")):
            fault = read(TurnRecord, path)
            if fault is not None and self.record(fault.key) is None:
                yield fault

    def save_fault(self, record: TurnRecord) -> None:
        """Store an infrastructure fault apart from the finished turns. Raises as ``save`` does.

        It overtakes an end of the trajectory at this turn or before it.
        """
        write_record(self.fault_path(record.key), to_json(record))
        self.forget_end(record.key)

    @contextmanager
    def trajectory(self, trajectory_id: str, stopped: Callable[[], bool]) -> Iterator[bool]:
        """Hold a trajectory, so that a second process waits for it and then finds its turns finished.

        Yields False if ``stopped`` became true while another process held it.
        """
        path = self.folder / "locks" / f"{trajectory_id}.lock"
        try:
            descriptor = open_lock(path)
        except OSError as error:
            raise write_failure(path, error) from error
        with locked(descriptor, stopped) as held:
            yield held

    def _forget_unfinished(self, key: TurnKey) -> None:
        """Remove what is only of a turn that is not stored. What cannot be removed is overruled by the stored turn."""
        remove(self.fault_path(key))
        remove(self.reply_path(key))
        self.forget_end(key)

    def forget_end(self, key: TurnKey) -> None:
        """Remove an end of the trajectory that the turn has overtaken."""
        end = self.load_end(key)
        if end is not None and end.key.turn <= key.turn:
            remove(self.end_path(key))

    def set_aside(self, stored: StoredTurn, reason: str) -> None:
        """Take a turn that is whole out of the run. What was paid for its reply stays counted."""
        record = stored.record
        if record.origin == ASKED and record.exchange is not None:
            self._keep_unused(PendingReply(key=record.key, exchange=record.exchange))
        self._set_aside(self.turn_path(record.key), reason)

    def _keep_unused(self, pending: PendingReply) -> None:
        path = self.folder / "replies" / UNUSED / f"{pending.key}.{time.time_ns()}.json"
        write_record(path, to_json(pending))

    def _set_aside(self, path: Path, reason: str) -> None:
        aside = self.folder / "aside"
        stamp = f"{time.time_ns()}"
        for damaged in (path, path.with_suffix(".cu")):
            target = aside / f"{path.parent.name}-{damaged.name}.{stamp}"
            try:
                aside.mkdir(exist_ok=True)
                damaged.rename(target)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise write_failure(target, error) from error
        with self._lock:
            self._notes.append(f"{path}: {reason}; moved to {aside} and done again")


def last_turns(run: RunStore, keys: Iterable[TurnKey]) -> list[TurnKey]:
    """The last turn that each of the trajectories was given, as far as the run says."""
    trajectories = {key.trajectory_id: key for key in keys}.values()
    given = [(key, run.turns_given(key.model)) for key in trajectories]
    return [key.model_copy(update={"turn": turns - 1}) for key, turns in given if turns is not None]
