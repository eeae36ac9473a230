"""Scripted neighbours of the engine: a model, a toolchain and a profiler that count what they are asked."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from ptxbench.agent import Engine, Evaluator, Profilers, RunStore, Skipped, TrajectoryPlan
from ptxbench.cases import Arch, Case
from ptxbench.models import End, PastTurn, Proposal
from ptxbench.profiler import Health, SafetyTool
from ptxbench.records import (
    Candidate,
    DeviceIdentity,
    Evidence,
    InstructionEvidence,
    SafetyEvidence,
    TurnRecord,
)
from ptxbench.toolchain import Built
from tests.unit.factories import (
    DEVICE,
    make_baseline,
    make_build,
    make_evidence,
    make_instructions,
    make_run,
    make_safety,
    suite_case,
)


class ScriptedModel:
    """Proposes numbered sources; ``None`` in the script is an answer without a kernel."""

    def __init__(self, script: Sequence[str | None], name: str = "scripted", floor: float | None = None) -> None:
        self.name = name
        self.turns: int | None = len(script)
        self.floor = floor
        self.script = list(script)
        self.histories: list[tuple[PastTurn, ...]] = []

    def min_speedup(self, case: Case) -> float | None:
        return self.floor

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        return None

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        self.histories.append(tuple(history))
        if turn >= len(self.script):
            return End(message="the script is over")
        source = self.script[turn]
        candidate = None if source is None else Candidate(source=source)
        return Proposal(candidate=candidate, extraction_error="" if candidate else "no code", origin="script")


class FixedModel(ScriptedModel):
    """Knows its sources without being asked, as ``reference`` does."""

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        source = self.script[turn] if turn < len(self.script) else None
        return Candidate(source=source).sha256 if source else None


class FakeToolchain:
    """Builds anything at once. ``most`` is how many builds ran at the same time."""

    def __init__(self, pause: Callable[[], object] = lambda: None) -> None:
        self.built: list[str] = []
        self.most = 0
        self._pause = pause
        self._running = 0
        self._lock = threading.Lock()

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        with self._lock:
            self.built.append(candidate.source)
            self._running += 1
            self.most = max(self.most, self._running)
        self._pause()
        with self._lock:
            self._running -= 1
        return Built(make_build(candidate_sha256=candidate.sha256, arch=arch.name), Path("k.so"))


class FakeProfiler:
    """Measures everything as correct; speedups follow ``baseline_ns``. ``faults`` are raised first, one per call."""

    def __init__(
        self, *, origin: Literal["measured", "replayed"] = "measured", device: DeviceIdentity | None = DEVICE
    ) -> None:
        self._origin: Literal["measured", "replayed"] = origin
        self.device = device
        self.calls: Counter[str] = Counter()
        self.faults: list[Exception] = []
        self.baseline_ns = 740_000
        self.known = True
        self.run = make_run()
        self.on_evaluate: Callable[[], object] = lambda: None

    @property
    def origin(self) -> Literal["measured", "replayed"]:
        return self._origin

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        self.calls["evaluate"] += 1
        self.on_evaluate()
        if self.faults:
            raise self.faults.pop(0)
        if not self.known:
            return None
        baseline = make_baseline(span_ns=(self.baseline_ns,) * 150, drift_span_ns=(self.baseline_ns,) * 10)
        evidence = make_evidence(
            case,
            candidate_sha256=built.build.candidate_sha256,
            run=self.run.model_copy(update={"baseline": baseline}),
        )
        if self.origin == "replayed":
            return evidence
        return evidence.model_copy(update={"safety": (), "instructions": Evidence.model_fields["instructions"].default})

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        self.calls["instructions"] += 1
        return make_instructions()

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        self.calls[f"sanitize {tool}"] += 1
        return make_safety(tool)

    def health(self) -> Health:
        return Health(kind="fake", device=self.device, message="")

    def close(self) -> None:
        self.calls["close"] += 1


class Bench:
    """An engine over scripted neighbours and a real run folder."""

    def __init__(self, folder: Path, model: ScriptedModel) -> None:
        self.folder = folder
        self.model = model
        self.toolchain = FakeToolchain()
        self.profiler = FakeProfiler()
        self.choice = "local"
        self.store = RunStore.open(folder, {})

    def plan(self, turns: int, trajectory: int = 0, case: Case | None = None) -> TrajectoryPlan:
        return TrajectoryPlan(self.model, case or suite_case(), 0, trajectory, turns)

    def engine(
        self,
        *plans: TrajectoryPlan,
        concurrency: int = 1,
        compile_slots: int = 2,
        told: Callable[[TurnRecord | Skipped], None] = lambda _: None,
    ) -> Engine:
        toolchain = self.toolchain
        return Engine(
            plans,
            store=self.store,
            evaluator=Evaluator(lambda: toolchain, compile_slots),  # type: ignore[arg-type,return-value]
            profilers=Profilers(self.choice, lambda name: self.profiler),
            concurrency=concurrency,
            told=told,
        )
