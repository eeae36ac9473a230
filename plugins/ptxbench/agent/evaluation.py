"""From a candidate to its verdict: build, measure, judge."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from ptxbench.agent.meter import Meter
from ptxbench.agent.safety import (
    DEFAULT_SAFETY,
    SafetyLevel,
    not_run,
    tools_before_numbers,
    tools_beside_numbers,
    with_lines,
)
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models import Proposal
from ptxbench.profiler import Profiler
from ptxbench.records import Build, BuildStatus, Candidate, Evidence, SafetyTool, Verdict
from ptxbench.verdict import judge, judge_extraction_error

if TYPE_CHECKING:
    from ptxbench.cases import Arch, Case
    from ptxbench.toolchain import Built, Toolchain
    from ptxbench.toolchain.source_lines import SourceLines

EvidenceOrigin = Literal["measured", "replayed", "none"]


class Evaluation(NamedTuple):
    """All that one proposal led to."""

    build: Build | None
    evidence: Evidence | None
    origin: EvidenceOrigin
    verdict: Verdict
    stages_ms: dict[str, float]
    """Wall time by stage."""


@runtime_checkable
class Builds(Protocol):
    """A profiler that also builds, where it measures."""

    def build(self, candidate: Candidate, arch: Arch) -> Built:
        """As ``Toolchain.build``."""


class Evaluator:
    """Builds and measures proposals. Safe for several threads; builds are limited to ``compile_slots`` at a time.

    ``discover`` finds the toolchain; it is called once, when the first candidate needs it. ``meter`` hears of the time
    that profilers measure. ``safety`` says which sanitizers look at what is measured.
    """

    def __init__(
        self,
        discover: Callable[[], Toolchain],
        compile_slots: int,
        meter: Meter | None = None,
        *,
        safety: SafetyLevel = DEFAULT_SAFETY,
    ) -> None:
        self._discover = discover
        self._meter = meter or Meter()
        self._safety: SafetyLevel = safety
        self._toolchain: Toolchain | None = None
        self._lock = threading.Lock()
        self._compile_slots = threading.BoundedSemaphore(compile_slots)

    def evaluate(self, case: Case, proposal: Proposal, profiler: Profiler) -> Evaluation:
        """The verdict of one proposal. Raises InfrastructureError for faults that are not the candidate's."""
        stages: dict[str, float] = {}
        if proposal.candidate is None:
            verdict = judge_extraction_error(proposal.extraction_error)
            return Evaluation(None, None, "none", verdict, stages)
        with _timed(stages, "build"):
            if isinstance(profiler, Builds):
                built = profiler.build(proposal.candidate, case.arch)
            else:
                built = self.build(proposal.candidate, case)
        evidence = None
        if built.build.status is BuildStatus.OK:
            evidence = self._measure(case, built, profiler, stages)
        if evidence is not None and profiler.origin == "measured":
            candidate = proposal.candidate
            with _timed(stages, "sanitize"):
                evidence = with_lines(evidence, built.build.kernels, lambda: self._source_lines(candidate, case, built))
        with _timed(stages, "judge"):
            verdict = judge(case, built.build, evidence)
        return Evaluation(built.build, evidence, profiler.origin if evidence else "none", verdict, stages)

    @contextmanager
    def borrowed_toolchain(self) -> Iterator[Toolchain | None]:
        """The toolchain, with a compile slot, for what is not a candidate's build; None where no compiler is found."""
        try:
            toolchain: Toolchain | None = self._found()
        except InfrastructureError:
            toolchain = None
        with self._compile_slots:
            yield toolchain

    def build(self, candidate: Candidate, case: Case) -> Built:
        """One candidate, with a compile slot. Raises as ``Toolchain.build``."""
        toolchain = self._found()
        with self._compile_slots:
            return toolchain.build(candidate, case.arch)

    def _found(self) -> Toolchain:
        with self._lock:
            self._toolchain = self._toolchain or self._discover()
            return self._toolchain

    def _measure(self, case: Case, built: Built, profiler: Profiler, stages: dict[str, float]) -> Evidence | None:
        if profiler.origin == "replayed":
            with _timed(stages, "evaluate"):
                return profiler.evaluate(case, built)
        with _timed(stages, "evaluate"), self._meter.measuring():
            evidence = profiler.evaluate(case, built)
        if evidence is None:
            return None
        evidence = self._sanitized(
            case, built, profiler, evidence, tools_before_numbers(self._safety, evidence), stages
        )
        verdict = judge(case, built.build, evidence)
        if verdict.correct and verdict.target_present:
            with _timed(stages, "instructions"), self._meter.measuring():
                instructions = profiler.instructions(case, built)
            evidence = evidence.model_copy(update={"instructions": instructions})
        if self._safety == "off":
            skipped = not_run("memcheck", "switched off: --safety off")
            return evidence.model_copy(update={"safety": (*evidence.safety, skipped)})
        # What a model is told of its turn holds all findings, so the turn waits for these; other candidates do not, and
        # go before them on the device.
        others = tools_beside_numbers(self._safety, evidence)
        return self._sanitized(case, built, profiler, evidence, others, stages)

    def _sanitized(
        self,
        case: Case,
        built: Built,
        profiler: Profiler,
        evidence: Evidence,
        tools: tuple[SafetyTool, ...],
        stages: dict[str, float],
    ) -> Evidence:
        for tool in tools:
            with _timed(stages, "sanitize"), self._meter.measuring():
                safety = profiler.sanitize(case, built, tool)
            evidence = evidence.model_copy(update={"safety": (*evidence.safety, safety)})
        return evidence

    def _source_lines(self, candidate: Candidate, case: Case, built: Built) -> SourceLines | None:
        """Lines of the candidate by place in its code. A line is a help, not a result: faults are no reason to fail."""
        with suppress(InfrastructureError, InputError), self._compile_slots:
            return self._found().source_lines(candidate, case.arch, built)
        return None


@contextmanager
def _timed(stages: dict[str, float], name: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        stages[name] = round(stages.get(name, 0.0) + (time.perf_counter() - started) * 1e3, 3)
