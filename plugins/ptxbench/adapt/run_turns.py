"""The turns of run folders, as collecting looks at them: small, so that thousands fit into memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ptxbench.agent import RunStore
from ptxbench.agent.damaged import damaged_records
from ptxbench.agent.run_names import resolve_run
from ptxbench.agent.turn_files import DamagedTurn, StoredTurn
from ptxbench.errors import InputError
from ptxbench.records import Message, Outcome, Record, Sha256, TurnKey, TurnRecord
from ptxbench.records.base import Count


class RunInput(Record):
    """A run that a dataset was made of."""

    name: str
    created_at: str
    turns: Count
    sha256: Sha256
    """Of its ``run.json`` and of every file of its turns and faults, with their names within the folder."""


class SeenTurn(NamedTuple):
    """One turn of a run, finished or not."""

    store: RunStore
    key: TurnKey
    definition: str
    variant_name: str
    outcome: Outcome
    rule: str
    source_sha256: str | None
    asked: bool
    """Whether a language model was asked for it, and answered."""
    opening_turn: int | None
    """The turn whose messages its conversation begins with; None where that is not stored."""
    next_turn: int | None
    """The turn that was told what became of this one."""

    @property
    def order(self) -> tuple[str, str, str, str, int, int, int]:
        """By operator, then by age: of equal kernels the first one stays."""
        key = self.key
        run = (self.store.identity.created_at, self.store.name)
        return (self.definition, key.arch, *run, key.variant, key.trajectory, key.turn)


class FoundTurns(NamedTuple):
    """Everything in some runs."""

    turns: list[SeenTurn]
    """In their ``order``."""
    inputs: tuple[RunInput, ...]


def find_turns(root: Path, runs: Sequence[str]) -> FoundTurns:
    """Read run folders, named or by path. Nothing is written.

    Raises InputError for one that is none, is empty, or is named twice.
    """
    turns: list[SeenTurn] = []
    inputs: list[RunInput] = []
    places: set[Path] = set()
    for name in runs:
        store = RunStore.read(Path(name) if Path(name).is_dir() else resolve_run(root, name))
        if store.folder.resolve() in places:
            raise InputError(f"{name}: expected each run once, found it twice; name it once")
        places.add(store.folder.resolve())
        found = list(_turns(store))
        if not found:
            raise InputError(f"{store.folder}: expected a run with turns, found none; check the name or path")
        turns += found
        inputs.append(
            RunInput(
                name=store.name,
                created_at=store.identity.created_at,
                turns=len(found),
                sha256=_content(store.folder),
            )
        )
    inputs.sort(key=lambda one: (one.name, one.created_at, one.sha256))
    _refuse_copies(inputs)
    return FoundTurns(sorted(turns, key=lambda turn: turn.order), tuple(inputs))


def _refuse_copies(inputs: Sequence[RunInput]) -> None:
    """A run that was copied would count twice. Raises InputError."""
    names: dict[str, str] = {}
    for one in inputs:
        if one.sha256 in names:
            raise InputError(
                f"{one.name}: expected each run once, found {names[one.sha256]} with the very same files; name one"
            )
        names[one.sha256] = one.name


def is_opening(messages: Sequence[Message]) -> bool:
    """Whether a conversation begins with these messages as a prompt of ours does."""
    return [message.role for message in messages] == ["system", "user"]


def _turns(store: RunStore) -> Iterator[SeenTurn]:
    damaged: list[DamagedTurn] = []
    keys: list[TurnKey] = []
    for _, entries in groupby(store.entries(), key=_folder):
        links: dict[int, _Link] = {}
        rows: list[SeenTurn] = []
        for entry in entries:
            if isinstance(entry, DamagedTurn):
                damaged.append(entry)
                continue
            links[entry.record.key.turn] = _link(entry.record)
            rows.append(_seen(store, entry.record))
        keys += [row.key for row in rows]
        yield from (_linked(row, links) for row in rows)
    faults = list(store.faults())
    yield from (_seen(store, record) for record in faults)
    known = [*keys, *(record.key for record in faults)]
    yield from (_seen(store, record) for record in damaged_records(store, damaged, []) if record.key not in known)


def _folder(entry: StoredTurn | DamagedTurn) -> str:
    return entry.path.parent.name if isinstance(entry, DamagedTurn) else entry.record.key.trajectory_id


class _Link(NamedTuple):
    follows: int | None
    opens: bool


def _link(record: TurnRecord) -> _Link:
    follows = record.follows
    earlier = follows if follows is not None and follows < record.key.turn else None
    return _Link(earlier, record.exchange is not None and is_opening(record.exchange.added))


def _seen(store: RunStore, record: TurnRecord) -> SeenTurn:
    exchange = record.exchange
    return SeenTurn(
        store=store,
        key=record.key,
        definition=record.definition,
        variant_name=record.variant_name,
        outcome=record.verdict.outcome,
        rule=record.verdict.rule,
        source_sha256=record.source_sha256,
        asked=exchange is not None and exchange.reply is not None,
        opening_turn=None,
        next_turn=None,
    )


def _linked(row: SeenTurn, links: dict[int, _Link]) -> SeenTurn:
    """The turn with what lies around it in its conversation."""
    first = row.key.turn
    while first in links and (before := links[first].follows) is not None:
        first = before
    opening = first if first in links and links[first].opens else None
    later = sorted(turn for turn, link in links.items() if link.follows == row.key.turn)
    return row._replace(opening_turn=opening, next_turn=later[0] if later else None)


def _content(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(folder):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode("utf-8", "surrogatepass"))
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    """Only what a run is of: a lock or a draft beside it changes nothing."""
    yield folder / "run.json"
    for pattern in ("turns/*/turn*.json", "turns/*/turn*.cu", "faults/*.json"):
        yield from sorted(folder.glob(pattern))
