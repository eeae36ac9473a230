"""One session of a repair run: engine, profiler, budget, and what it leaves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ptxbench.adapt.model import Failure
from ptxbench.adapt.repair import Assigned, Ledger, Task, Yield, gather, plan_repairs
from ptxbench.adapt.teacher import Teacher, engaged, held, total
from ptxbench.agent import Engine, Evaluator, Profilers, RunStore, suite_identity
from ptxbench.agent.budget import Limits, Spent, spent_in
from ptxbench.agent.conversation import Connection, ConversingModel, Telling
from ptxbench.agent.identity import ModelTerms
from ptxbench.agent.plan import Skipped
from ptxbench.agent.run_cases import RunCases
from ptxbench.agent.run_file import RUN_FILE
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models.entry import ModelEntry
from ptxbench.records import TurnRecord

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.packs import Pack


class Workshop(NamedTuple):
    """Where repairs are made."""

    root: Path
    """The checkout."""
    folder: Path
    """The repair run's."""
    profiler: str = "auto"
    """``auto``, ``local`` or ``replay``."""
    concurrency: int = 4
    limits: Limits = Limits()
    trace_sets: tuple[Path, ...] = ()
    say: Callable[[str], None] = lambda _: None
    """Hears of each answer when it is judged, and of what happened to devices meanwhile; from several threads."""


class Outcome(NamedTuple):
    """What a session left."""

    found: Yield
    faults: dict[str, int]
    """Kind of a fault that kept a turn from happening -> turns."""
    usd: float
    tokens: int
    """What this session spent."""


def repair(failures: Sequence[Failure], entry: ModelEntry, task: Task, workshop: Workshop) -> Outcome:
    """Have failures repaired; what an earlier session did is not done again.

    Whatever ends it, each reply and each judged turn is on disk before anything is made of it. Raises InputError for a
    run that was begun otherwise, or a case that this checkout does not have; InfrastructureError where what was
    measured cannot be stored.
    """
    if not failures:
        raise InputError("expected failures to repair, found none; collect some first")
    cases = RunCases(workshop.root, workshop.trace_sets)
    found = {failure.id: cases.of(failure.origin.suites, failure.origin.key) for failure in failures}
    with (
        held(workshop.folder),
        engaged(entry, workshop.folder, workshop.limits, _spent(workshop.folder, entry)) as teacher,
    ):
        store = _open(workshop, failures, list(found.values()), teacher, task)
        ledger = Ledger(store.folder)
        assigned = ledger.take(failures)
        faults = _work(store, ledger, assigned, teacher, task, workshop, cases)
    progress = teacher.meter.progress()
    return Outcome(gather(store, assigned, teacher.name, task), faults, progress.usd, progress.tokens)


def _open(
    workshop: Workshop, failures: Sequence[Failure], cases: Sequence[Case], teacher: Teacher, task: Task
) -> RunStore:
    """The run. Its terms are the teacher's settings and the task."""
    from ptxbench.agent.run_cases import SEPARATOR
    from ptxbench.cases import load_suite

    names = dict.fromkeys(name for failure in failures for name in failure.origin.suites)
    contents: dict[str, str] = {}
    for name in names:
        if SEPARATOR in name:
            contents[name] = suite_identity([case for case in cases if name.endswith(f"/{case.definition.name}")])
        else:
            contents[name] = suite_identity(load_suite(workshop.root, name).table)
    terms = ModelTerms(sent=dict(teacher.client.settings()), knowledge="full", conditions=task.conditions)
    return RunStore.open(workshop.folder, contents, {teacher.name: task.turns}, {teacher.name: terms})


def _work(
    store: RunStore,
    ledger: Ledger,
    assigned: Sequence[Assigned],
    teacher: Teacher,
    task: Task,
    workshop: Workshop,
    cases: RunCases,
) -> dict[str, int]:
    """Run the trajectories to their ends. Returns the faults that kept turns from happening."""
    from ptxbench.toolchain import Toolchain

    evaluator = Evaluator(Toolchain.discover, max(1, os.cpu_count() or 1), teacher.meter)
    model = _model(store, ledger, teacher, task, evaluator)
    plans = plan_repairs(assigned, model, task, cases.of)
    engine = Engine(
        plans,
        store=store,
        evaluator=evaluator,
        profilers=_profilers(workshop, teacher.stop.is_set),
        concurrency=workshop.concurrency,
        stop=teacher.stop,
        meter=teacher.meter,
        told=partial(_tell, workshop.say),
    )
    faults: dict[str, int] = {}
    try:
        for plan in plans:
            for turn in range(plan.turns):
                try:
                    engine.turn(plan.key(turn))
                except InfrastructureError as error:
                    faults[error.kind] = faults.get(error.kind, 0) + 1
                for note in engine.take_notes():
                    workshop.say(note)
    finally:
        try:
            engine.close()
        finally:
            model.close()
    return faults


def _tell(say: Callable[[str], None], found: TurnRecord | Skipped) -> None:
    if isinstance(found, TurnRecord):
        reason = found.verdict.message.partition("\n")[0][:120]
        say(f"{found.key}: {found.verdict.outcome.value}: {reason}")


def _model(store: RunStore, ledger: Ledger, teacher: Teacher, task: Task, evaluator: Evaluator) -> ConversingModel:
    """The teacher as the loop asks a model: each trajectory begins with its failure."""
    telling = Telling(
        opening=lambda case, variant, number: task.opening(case, ledger.find(case, variant, number)), goal=task.goal
    )
    return ConversingModel(
        teacher.entry,
        task.turns,
        _no_pack,
        lambda: Connection(
            client=teacher.client,
            replies=store,
            budget=teacher.budget,
            meter=teacher.meter,
            stopped=teacher.stop.is_set,
            toolchain=evaluator.borrowed_toolchain,
        ),
        lambda: telling,
    )


def _no_pack(case: Case) -> Pack:
    """A repair begins with the prompt of the failure, which holds the pack of its day."""
    raise AssertionError(case.name)


def _profilers(workshop: Workshop, stopped: Callable[[], bool]) -> Profilers:
    from ptxbench.profiler import Profiler, open_profiler
    from ptxbench.profiler.protocol import EVIDENCE_FOLDERS

    roots = tuple(workshop.root / folder for folder in EVIDENCE_FOLDERS)

    def opened(name: str) -> Profiler:
        return open_profiler(name, root=workshop.root, evidence_roots=roots, stopped=stopped)

    return Profilers(workshop.profiler, opened)


def _spent(folder: Path, entry: ModelEntry) -> Spent:
    """What earlier sessions of the run took."""
    if not (folder / RUN_FILE).exists():
        return Spent()
    return total(spent_in(RunStore.read(folder), {entry.name: entry.prices}).values())
