"""Repairing failures: the teacher in the benchmark's own loop, begun with the kernel that failed (PROTOCOL 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import JsonValue, ValidationError

from ptxbench.adapt.defaults import REPAIR_TURNS
from ptxbench.adapt.feedback_alone import without_next
from ptxbench.adapt.kernel_code import code_sha256
from ptxbench.adapt.model import Failure, Provenance, Repair
from ptxbench.adapt.texts import VERSION, digest, filled
from ptxbench.agent import RunStore, TrajectoryPlan
from ptxbench.agent.conversation import ConversingModel, Opening
from ptxbench.agent.dialogue import fenced
from ptxbench.agent.feedback.goal_text import goal_text
from ptxbench.agent.files import write_record
from ptxbench.agent.goal import Goal
from ptxbench.errors import InputError
from ptxbench.records import Message, Outcome, Record, TurnKey
from ptxbench.records.base import MOST_TURNS, Number, first_fault

if TYPE_CHECKING:
    from ptxbench.cases import Case

LEDGER = "failures.jsonl"
"""Which failure each trajectory of a repair run is of."""

GOES_ON = ("not measured", "not finished")
"""What going on later may change."""

FindCase = Callable[[Sequence[str], TurnKey], "Case"]


class Assigned(Record):
    """A failure and the trajectory that repairs it."""

    trajectory: Number
    failure: Failure

    def key(self, teacher: str, turn: int = 0) -> TurnKey:
        """Of one of the trajectory's turns."""
        failed = self.failure.origin.key
        return failed.model_copy(update={"model": teacher, "trajectory": self.trajectory, "turn": turn})


class Ledger:
    """The failures of a repair run, in the order in which they came to it. They keep their numbers for good.

    A case's variant has as many trajectories as failures: numbers are counted for each by itself.
    """

    def __init__(self, folder: Path) -> None:
        """Raises InputError for a file that cannot be read."""
        self._path = folder / LEDGER
        self._assigned: dict[str, Assigned] = {}
        self._by_place: dict[tuple[str, str, int, int], Assigned] = {}
        for entry in _read(self._path):
            self._add(entry)

    def __iter__(self) -> Iterator[Assigned]:
        return iter(tuple(self._assigned.values()))

    def take(self, failures: Iterable[Failure]) -> tuple[Assigned, ...]:
        """The trajectories of these failures, each once. New ones are added, and are on disk before this returns.

        Raises InputError for more than a case can have, InfrastructureError where the ledger cannot be written.
        """
        wanted = {failure.id: failure for failure in failures}
        new = {name: failure for name, failure in wanted.items() if name not in self._assigned}
        for failure in new.values():
            self._add(Assigned(trajectory=self._next(failure), failure=failure))
        if new:
            lines = "".join(f"{entry.model_dump_json()}\n" for entry in self)
            write_record(self._path, lines.encode())
        return tuple(self._assigned[each] for each in wanted)

    def find(self, case: Case, variant: int, trajectory: int) -> Failure:
        """The failure that a trajectory is of."""
        return self._by_place[case.name, case.arch.name, variant, trajectory].failure

    def _add(self, entry: Assigned) -> None:
        key = entry.failure.origin.key
        self._assigned[entry.failure.id] = entry
        self._by_place[key.case, key.arch, key.variant, entry.trajectory] = entry

    def _next(self, failure: Failure) -> int:
        key = failure.origin.key
        place = (key.case, key.arch, key.variant)
        number = sum(known[:3] == place for known in self._by_place)
        if number >= MOST_TURNS:
            raise InputError(f"{self._path}: expected at most {MOST_TURNS} failures of {key.case}; use another run")
        return number


class Task(NamedTuple):
    """What a teacher is asked for."""

    goal: Goal = Goal(None, "ignored")
    """When a failure counts as repaired: correct, and by option more."""
    turns: int = REPAIR_TURNS

    @property
    def conditions(self) -> dict[str, JsonValue]:
        """What a repair run keeps: resuming it for another goal, or in other words, is refused."""
        goal: dict[str, JsonValue] = dict(self.goal._asdict())
        return {"task": "repair", "goal": goal, "prompts": VERSION, "prompts_sha256": digest("repair")}

    def opening(self, case: Case, failure: Failure) -> Opening:
        """What the teacher is told first: x, k-, and e with the instruction to mend the cause and nothing else.

        Of e the facts and the advice: its turns and its goal were the model's.
        """
        told = filled("repair", goal=goal_text(self.goal, case, None), turns=self.turns)
        messages = (
            *failure.prompt,
            Message(role="assistant", content=fenced(failure.source)),
            Message(role="user", content=f"{without_next(failure.feedback).rstrip()}\n\n{told}"),
        )
        identity = failure.prompt_identity
        return Opening(messages, identity.model_copy(update={"template": f"{identity.template} + repair {VERSION}"}))


def plan_repairs(
    assigned: Iterable[Assigned], teacher: ConversingModel, task: Task, find_case: FindCase
) -> tuple[TrajectoryPlan, ...]:
    """One trajectory for each failure. Raises InputError for a case that this checkout does not have."""
    plans = []
    for entry in assigned:
        origin = entry.failure.origin
        case = find_case(origin.suites, origin.key)
        plans.append(TrajectoryPlan(teacher, case, origin.key.variant, entry.trajectory, task.turns, task.goal))
    return tuple(plans)


class Yield(NamedTuple):
    """What became of some failures."""

    repairs: tuple[Repair, ...]
    counts: dict[str, int]
    """Why the others have none -> how many. In the order in which they are looked for."""


def gather(store: RunStore, assigned: Iterable[Assigned], teacher: str, task: Task) -> Yield:
    """The repairs that a run holds of these failures: of each the first kernel that reaches the goal.

    A kernel that is the failed one but for comments and layout is no repair, whatever was measured: then the failure
    was none.
    """
    repairs: list[Repair] = []
    counts = dict.fromkeys(("repaired", "same kernel", "not repaired", "ended early", *GOES_ON), 0)
    for entry in assigned:
        repair, reason = _repair(store, entry, teacher, task)
        counts[reason] += 1
        if repair is not None:
            repairs.append(repair)
    return Yield(tuple(sorted(repairs, key=lambda repair: repair.id)), counts)


def _repair(store: RunStore, entry: Assigned, teacher: str, task: Task) -> tuple[Repair | None, str]:
    failure = entry.failure
    for turn in range(task.turns):
        key = entry.key(teacher, turn)
        record, candidate = store.record(key), store.candidate(key)
        if record is None or candidate is None or not task.goal.reached(record.verdict):
            continue
        if code_sha256(candidate.source) == code_sha256(failure.source):
            return None, "same kernel"
        origin = Provenance(
            run=store.name,
            run_created_at=store.identity.created_at,
            suites=tuple(store.identity.suites),
            key=key,
        )
        answers = sum(store.record(entry.key(teacher, each)) is not None for each in range(turn + 1))
        found = Repair(
            failure=failure,
            source=candidate.source,
            verdict=record.verdict,
            turns=answers,
            teacher=teacher,
            turn=origin,
        )
        return found, "repaired"
    records = [store.record(entry.key(teacher, turn)) for turn in range(task.turns)]
    if any(record is not None and record.verdict.outcome is Outcome.UNKNOWN for record in records):
        return None, "not measured"
    if None not in records:
        return None, "not repaired"
    end = store.load_end(entry.key(teacher))
    return None, "ended early" if end is not None and end.reason == "context_exhausted" else "not finished"


def _read(path: Path) -> list[Assigned]:
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(Assigned.model_validate_json(line))
        except ValidationError as error:
            raise InputError(
                f"{path}:{number}: expected the failure of a trajectory, found {first_fault(error)}; restore the file"
            ) from error
    return found
