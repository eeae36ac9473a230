"""Whether repairs are what their run says: their file is a copy, which may be edited, or older than a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ptxbench.adapt.model import Repair, read_lines
from ptxbench.agent import RunStore
from ptxbench.agent.run_file import RUN_FILE
from ptxbench.errors import InputError
from ptxbench.records import Outcome, Target, Verdict

_AGAIN = "run `ptxbench fixit repair` on the run again, which writes the file anew"


class Taught(NamedTuple):
    """What a training record says of a repair's verdict."""

    outcome: Outcome
    target: Target
    speedup: float | None


def taught(verdict: Verdict) -> Taught:
    """Of a verdict, what a training record says."""
    return Taught(verdict.outcome, verdict.target, verdict.speedup)


def read_repairs(path: Path) -> list[Repair]:
    """The repairs of a file. Where it lies in the folder of their run, each is held to the turn that it is of.

    The verdict that is stored with the turn counts; ``ptxbench judge`` tells whether today's rules still say it. Raises
    InputError.
    """
    repairs = read_lines(Repair, path)
    for repair in repairs:
        if not repair.verdict.correct:
            raise InputError(
                f"{path}: repair {repair.id}: expected a kernel that was judged correct, found "
                f"{repair.verdict.outcome}; {_AGAIN}"
            )
    if (path.parent / RUN_FILE).is_file():
        store = RunStore.read(path.parent)
        for repair in repairs:
            if repair.turn.run_created_at == store.identity.created_at and (fault := _fault(repair, store)):
                raise InputError(f"{path}: repair {repair.id}, {repair.turn.key}: expected {fault}; {_AGAIN}")
    return repairs


def _fault(repair: Repair, store: RunStore) -> str:
    """What was expected of the turn and what was found, or nothing."""
    record, candidate = store.record(repair.turn.key), store.candidate(repair.turn.key)
    if record is None or candidate is None:
        return "the turn in the run there, found none"
    if candidate.source != repair.source:
        return "the kernel of the turn there, found another"
    found, there = taught(repair.verdict), taught(record.verdict)
    others = [name for name, one, other in zip(Taught._fields, found, there, strict=True) if one != other]
    return f"the verdict that the turn has there, found another {', '.join(others)}" if others else ""
