"""Which profiler answers, and which one builds."""

from __future__ import annotations

from pathlib import Path

from ptxbench.agent import Profilers
from ptxbench.agent.evaluation import Evaluator
from ptxbench.agent.plan import Skipped
from ptxbench.models import Proposal
from ptxbench.profiler import Profiler
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.records import Build, BuildStatus, Candidate, Outcome
from ptxbench.toolchain import Built
from tests.unit.factories import GEMM, make_build, suite_case

CASE = suite_case(GEMM)


class Elsewhere(ReplayProfiler):
    """Has one kind of device, and compilers of its own, which refuse everything."""

    def __init__(self) -> None:
        super().__init__([])
        self.built: list[str] = []

    def refusal(self, case: object) -> str | None:
        return None if case is CASE else "no such GPU"

    def build(self, candidate: Candidate, arch: object) -> Built:
        self.built.append(candidate.sha256)
        build: Build = make_build(candidate_sha256=candidate.sha256)
        return Built(build.model_copy(update={"status": BuildStatus.COMPILE_ERROR}), None, candidate)


def test_a_profiler_with_several_kinds_of_device_says_itself_what_it_measures() -> None:
    elsewhere = Elsewhere()
    profilers = Profilers("ray", lambda name: elsewhere)
    assert profilers.for_case(CASE) is elsewhere
    assert profilers.for_case(suite_case(GEMM, "b200")) == Skipped("no such GPU", "unmeasured")


def test_a_profiler_that_builds_needs_no_compiler_here(tmp_path: Path) -> None:
    def discover() -> object:
        raise AssertionError("a toolchain of this machine was looked for")

    elsewhere = Elsewhere()
    profiler: Profiler = elsewhere
    candidate = Candidate(source="int x;")
    evaluator = Evaluator(discover, 1)  # type: ignore[arg-type]
    found = evaluator.evaluate(CASE, Proposal(candidate=candidate, origin="test"), profiler)
    assert found.verdict.outcome is Outcome.COMPILE_ERROR
    assert elsewhere.built == [candidate.sha256]
