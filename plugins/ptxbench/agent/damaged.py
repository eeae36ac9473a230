"""Turns whose files are damaged: nobody can say what became of them, which is no fault of the model's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ptxbench.agent.fault_record import fault_record
from ptxbench.agent.store import RunStore
from ptxbench.agent.turn_files import DamagedTurn
from ptxbench.records import InfrastructureFault, TurnKey, TurnRecord

KIND = "damaged_record"
"""Of the infrastructure fault that stands for such a turn."""

_TRAJECTORY = re.compile(r"(?P<cell>.+)-v(?P<variant>\d+)-t(?P<trajectory>\d+)")
_TURN = re.compile(r"turn(\d+)\.json")


def damaged_records(
    run: RunStore, damaged: Iterable[DamagedTurn], others: Iterable[TurnRecord]
) -> Iterator[TurnRecord]:
    """Yield a record for each damaged turn which takes it out of every N, as a fault of the machinery does.

    ``others`` are the run's other records, faults included: a turn among them is not told twice. Where not even the
    file's name says which turn it was, there is no record.
    """
    rows = list(others)
    known = {row.key for row in rows}
    models = {*run.identity.turns, *(row.key.model for row in rows)}
    for turn in damaged:
        key = _key(turn, models)
        if key is not None and key not in known:
            fault = InfrastructureFault(kind=KIND, message=f"{turn.path.name}: {turn.reason}")
            yield fault_record(key, fault, definition=key.case)


def _key(turn: DamagedTurn, models: Iterable[str]) -> TurnKey | None:
    """Which turn a file is of, by its path. Models' names may hold hyphens, so only those of the run are looked for."""
    place, number = _TRAJECTORY.fullmatch(turn.path.parent.name), _TURN.fullmatch(turn.path.name)
    if place is None or number is None:
        return None
    for model in sorted(models, key=len, reverse=True):
        case, _, arch = place["cell"].removeprefix(f"{model}-").rpartition("-")
        if place["cell"].startswith(f"{model}-") and case and arch:
            return TurnKey(
                model=model,
                case=case,
                arch=arch,
                variant=int(place["variant"]),
                trajectory=int(place["trajectory"]),
                turn=int(number[1]),
            )
    return None
