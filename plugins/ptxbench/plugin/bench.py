"""What one pytest session works on. Everything is read when it is first needed: most sessions need none of it."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.plugin.allotment import Allotment
from ptxbench.plugin.items import expect_arch, plan_trajectories
from ptxbench.plugin.options import Options
from ptxbench.plugin.resources import compile_slots, find_toolchain, read_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pydantic import JsonValue

    from ptxbench.adapt.retrieval import Corpus
    from ptxbench.agent import Engine, Evaluator, Profilers, RunStore, TrajectoryPlan
    from ptxbench.agent.budget import Budget, Spent
    from ptxbench.agent.conversation import Connection, ConversingModel, Telling
    from ptxbench.agent.identity import Session
    from ptxbench.agent.meter import Meter
    from ptxbench.cases import Case, Suite
    from ptxbench.cases.trace_sets import Collections
    from ptxbench.models import Model
    from ptxbench.models.client import ModelClient
    from ptxbench.models.entry import ModelEntry
    from ptxbench.packs import Pack
    from ptxbench.records import TurnRecord
    from ptxbench.trace import Solution

BENCH = pytest.StashKey["Bench"]()
"""Where a session on a checkout keeps its ``Bench``."""


class Bench:
    """Checkout, options, and what follows from them. Its properties raise InputError for broken input.

    ``run_folder`` and ``allotment`` are what an xdist controller settled for its workers.
    """

    def __init__(
        self, root: Path, options: Options, run_folder: Path | None = None, allotment: Allotment | None = None
    ) -> None:
        self.root = root
        self.options = options
        self.stop = threading.Event()
        self.resolved: dict[str, TurnRecord] = {}
        """Turn id -> what a turn was resolved to in this process, as it is stored."""
        self.told: dict[str, list[tuple[str, str]]] = {}
        """Turn id -> JUnit properties of that."""
        self._run_folder = run_folder
        self._allotment = allotment
        self._budget: Budget | None = None
        self._clients: dict[str, ModelClient] = {}
        self._conversing: dict[str, ConversingModel] = {}
        self._packs: dict[str, Pack] = {}
        self._repeated: list[RunStore] = []
        self._held: int | None = None
        self._lock = threading.Lock()

    @cached_property
    def run_folder(self) -> Path:
        """Where this session's turns go: as given, as the option says, or a fresh folder."""
        from ptxbench.agent import fresh_run_name, resolve_run

        name = self.options.run if self.options.run is not None else fresh_run_name(datetime.now(UTC))
        return self._run_folder or resolve_run(self.root, name)

    @property
    def run_name(self) -> str:
        """What ``--run`` would have to be to resume this run."""
        in_generated = self.run_folder.parent == self.root / "generated"
        return self.run_folder.name if in_generated else str(self.run_folder)

    @cached_property
    def suite(self) -> Suite:
        """The selected suite, or what the collections hold."""
        from ptxbench.cases import load_suite

        return self._collections.suite if self.options.trace_sets else load_suite(self.root, self.options.suite)

    @cached_property
    def _collections(self) -> Collections:
        from ptxbench.cases import available_archs
        from ptxbench.cases.trace_sets import load_collections

        # Their cases are bound to no architecture, so the user says on which they run.
        expect_arch(self.options.mark_expression, available_archs(self.root))
        globs = (self.options.case,) if self.options.case is not None else ()
        return load_collections(self.root, self.options.trace_sets, globs)

    @property
    def left_out(self) -> tuple[str, ...]:
        """What of the collections cannot be run, and why."""
        return self._collections.left_out if self.options.trace_sets else ()

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Its selected cases, on every architecture; ``-m`` chooses among those."""
        from ptxbench.cases import select_cases

        return select_cases(self.suite, globs=(self.options.case,) if self.options.case is not None else ())

    @cached_property
    def models(self) -> tuple[Model, ...]:
        """The selected models. No language model is asked, or its key looked for, before a turn needs it."""
        from ptxbench.models import open_models

        return open_models(
            self.options.models,
            root=self.root,
            open_run=self._open_run,
            catalog=read_catalog(self.options.models_file),
            converse=self._converse,
            solutions=self._solutions if self.options.trace_sets else None,
        )

    @cached_property
    def plans(self) -> tuple[TrajectoryPlan, ...]:
        """Every trajectory that the options ask for."""
        return plan_trajectories(self.options, self.cases, self.models)

    @cached_property
    def store(self) -> RunStore:
        """The run folder, created or resumed."""
        from ptxbench.agent import RunStore

        return RunStore.open(self.run_folder, *self.session())

    def session(self) -> Session:
        """What this session brings to its run; of language models, those whose clients are open."""
        from ptxbench.agent import suite_identity
        from ptxbench.agent.identity import ModelTerms, Session

        turns = {plan.model.name: plan.turns for plan in self.plans}
        terms = {
            name: ModelTerms(
                sent=dict(self._clients[name].settings()),
                knowledge=self.options.knowledge,
                conditions=self._conditions(),
            )
            for name in self._conversing
            if name in self._clients
        }
        return Session({name: suite_identity(cases) for name, cases in self._content().items()}, turns, terms)

    def _conditions(self) -> dict[str, JsonValue]:
        """What prompts hold beside the knowledge level, feedback included."""
        found: dict[str, JsonValue] = {"expert_guidance": True} if self.options.guidance else {}
        if self.options.safety != "memcheck":  # feedback tells of what was looked for
            found["safety"] = self.options.safety
        if self.options.retrieval is not None:
            from ptxbench.adapt.retrieval_notes import conditions

            found |= conditions(self.corpus, self.options.retrieval)
        return found

    @cached_property
    def corpus(self) -> Corpus:
        """The repairs that notes are retrieved from. Raises InputError where they cannot be read."""
        from ptxbench.adapt.corpus_file import read_corpus

        return read_corpus(self.options.retrieval_from)

    def note_tokens(self) -> int:
        """What retrieved notes add to a prompt on average, about; 0 without."""
        if self.options.retrieval is None:
            return 0
        from ptxbench.adapt.retrieval_notes import usual_tokens

        return usual_tokens(self.corpus, self.options.retrieval)

    def _telling(self) -> Telling:
        from ptxbench.agent.conversation import Telling

        if self.options.retrieval is None:
            return Telling()
        from ptxbench.adapt.retrieval_notes import RetrievedNotes, RunName

        run = RunName(self.store.name, self.store.identity.created_at)
        return Telling(notes=RetrievedNotes(self.corpus, self.options.retrieval, run))

    def _content(self) -> dict[str, list[Case]]:
        """What the session's turns are of, by the name under which a run keeps its identity."""
        from ptxbench.agent.run_cases import definition_suite

        if not self.options.trace_sets:
            return {self.suite.name: list(self.suite.table)}
        found: dict[str, list[Case]] = {}
        for case in self.suite.table:
            found.setdefault(definition_suite(case), []).append(case)
        return found

    def _solutions(self) -> dict[str, list[Solution]]:
        """The solutions of all collections, by definition, in the order of their files."""
        from ptxbench.trace.trace_set import read_solutions

        found: dict[str, list[Solution]] = {}
        for folder in self.options.trace_sets:
            for _, solution in read_solutions(folder):
                found.setdefault(solution.definition, []).append(solution)
        return found

    @cached_property
    def meter(self) -> Meter:
        """What this process has done so far."""
        from ptxbench.agent.meter import Meter

        return Meter()

    @cached_property
    def evaluator(self) -> Evaluator:
        """What builds and judges candidates."""
        from ptxbench.agent import Evaluator

        return Evaluator(find_toolchain, compile_slots(), self.meter, safety=self.options.safety)

    def pack(self, case: Case) -> Pack:
        """The knowledge that a prompt on this case holds. Raises InputError for a broken pack."""
        from ptxbench.packs import load_pack

        arch = case.arch.name
        with self._lock:
            if arch not in self._packs:
                self._packs[arch] = load_pack(self.root, arch, self.options.knowledge, guidance=self.options.guidance)
            return self._packs[arch]

    def conversing(self, plans: Iterable[TrajectoryPlan]) -> tuple[ConversingModel, ...]:
        """The language models of these trajectories."""
        names = dict.fromkeys(plan.model.name for plan in plans)
        return tuple(self._conversing[name] for name in names if name in self._conversing)

    def begin(self, plans: Sequence[TrajectoryPlan]) -> None:
        """Find out before the first turn what would fail at the fifth: prices, packs, keys, packages, programs, run.

        Raises InputError.
        """
        self._check(plans)
        self.store  # noqa: B018 - opening it is the point
        if self.conversing(plans):
            self._hold()

    def check_prices(self, model: ConversingModel) -> None:
        """Raises InputError for a model whose calls a budget in dollars could not count."""
        if self.options.budget_usd is not None and model.entry.prices is None:
            raise InputError(
                f"--budget-usd: expected prices of every language model, found none of {model.name}; add `prices` "
                "to its entry in a models file (--models-file), or use --budget-tokens"
            )

    def _check(self, plans: Sequence[TrajectoryPlan]) -> None:
        for model in self.conversing(plans):
            self.check_prices(model)
            own = [plan for plan in plans if plan.model is model]
            for plan in {(plan.case.name, plan.case.arch.name, plan.variant): plan for plan in own}.values():
                model.first_prompt(plan.case, plan.variant)
            self.open_client(model.entry)

    def allot(self, workers: int) -> Allotment:
        """What this session may spend."""
        limits = (self.options.budget_usd, self.options.budget_tokens)
        if limits != (None, None) and self._stored() and self.conversing(self.plans):
            self._hold()  # before looking what others spent, who could go on spending
        earlier = {} if limits == (None, None) else self._spent()
        spent = {name: (amount.usd, amount.tokens) for name, amount in earlier.items()}
        return Allotment(usd=limits[0], tokens=limits[1], workers=workers, spent=spent)

    def shared(self, workers: int) -> Allotment:
        """The same for all workers that are ever started, the replacements of crashed ones included."""
        self._allotment = self._allotment or self.allot(workers)
        return self._allotment

    def open_profilers(self) -> Profilers:
        """The profilers that ``--profiler`` asks for; none is started yet."""
        from ptxbench.agent import Profilers
        from ptxbench.agent.recorded import RecordedProfiler
        from ptxbench.profiler import Profiler, open_profiler
        from ptxbench.profiler.protocol import EVIDENCE_FOLDERS

        roots = tuple(self.root / folder for folder in EVIDENCE_FOLDERS)

        def opened(name: str) -> Profiler:
            profiler = open_profiler(name, root=self.root, evidence_roots=roots, stopped=self.stop.is_set)
            repeats = profiler.origin == "replayed" and self._repeated
            return RecordedProfiler(self._repeated, profiler) if repeats else profiler

        return Profilers(self.options.profiler, opened)

    def open_engine(self, plans: Sequence[TrajectoryPlan], profilers: Profilers) -> Engine:
        """An engine for this process's trajectories; nothing runs yet."""
        from ptxbench.agent import Engine

        if self._allotment is None:
            budget = self.allot(workers=1).budget()
        else:
            # A replacement goes on where its predecessor stopped.
            budget = self._allotment.budget({plan.id for plan in plans}, self._spent)
        self._budget = budget
        self.meter.plan(sum(plan.turns for plan in plans))
        return Engine(
            plans,
            store=self.store,
            evaluator=self.evaluator,
            profilers=profilers,
            concurrency=self.options.concurrency,
            stop=self.stop,
            meter=self.meter,
        )

    def close_models(self) -> None:
        """Let go of clients. Raises InfrastructureError if a reply was received that still cannot be stored."""
        failure: InfrastructureError | None = None
        closing: list[Callable[[], None]] = [model.close for model in self._conversing.values()]
        for close in (*closing, *(client.close for client in self._clients.values())):
            # Whatever one of them meets, the others' replies are stored too.
            try:
                close()
            except InfrastructureError as error:
                failure = failure or error
            except Exception as error:
                failure = failure or InfrastructureError("internal_error", f"{type(error).__name__}: {error}")
        if failure is not None:
            raise failure

    def release(self) -> None:
        """Let other sessions have the run. Idempotent."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def _open_run(self, text: str) -> RunStore:
        from ptxbench.agent import resolve_run
        from ptxbench.agent.repeating import RepeatedRun

        run = RepeatedRun.read(resolve_run(self.root, text))
        self._repeated.append(run)
        return run

    def _converse(self, entry: ModelEntry) -> ConversingModel:
        from ptxbench.agent.conversation import ConversingModel

        turns = self.options.turns_given(ConversingModel.turns)
        model = ConversingModel(entry, turns, self.pack, lambda: self._connect(entry), self._telling)
        self._conversing[model.name] = model
        return model

    def _connect(self, entry: ModelEntry) -> Connection:
        from ptxbench.agent.conversation import Connection

        assert self._budget is not None
        return Connection(
            client=self.open_client(entry),
            replies=self.store,
            budget=self._budget,
            meter=self.meter,
            stopped=self.stop.is_set,
            toolchain=self.evaluator.borrowed_toolchain,
        )

    def open_client(self, entry: ModelEntry) -> ModelClient:
        """The client of a model, the same every time. Raises InputError where something that it needs is missing."""
        from ptxbench.models.registry import open_client

        with self._lock:
            if entry.name not in self._clients:
                self._clients[entry.name] = open_client(entry, run_folder=self.run_folder)
            return self._clients[entry.name]

    def _spent(self) -> dict[str, Spent]:
        """What the run folder says was spent, by trajectory."""
        from ptxbench.agent import RunStore
        from ptxbench.agent.budget import spent_in

        if not self._stored():
            return {}
        self.models  # noqa: B018 - a controller has not opened them yet, and prices are theirs to know
        prices = {name: model.entry.prices for name, model in self._conversing.items()}
        return spent_in(RunStore.read(self.run_folder), prices)

    def _stored(self) -> bool:
        from ptxbench.agent.run_file import RUN_FILE

        return (self.run_folder / RUN_FILE).exists()

    def _hold(self) -> None:
        """Hold the run for this session, workers included: what they spend is this session's."""
        from ptxbench.agent.session_lock import hold_session

        if self._held is None and self._run_folder is None:
            limits = (self.options.budget_usd, self.options.budget_tokens)
            self._held = hold_session(self.run_folder, alone=limits != (None, None))
