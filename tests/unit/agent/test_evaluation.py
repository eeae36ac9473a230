"""What the evaluator lends and tells beside its verdicts."""

from typing import Any

import pytest

from ptxbench.agent import Evaluator
from ptxbench.agent.meter import Meter
from ptxbench.errors import InfrastructureError
from ptxbench.models import Proposal
from ptxbench.records import Candidate, Evidence, RunStatus, Safe, SafetyEvidence, SafetyFinding, ToolStatus
from ptxbench.toolchain.source_lines import KernelLines, LineTable, SourceLines
from tests.unit.agent.parts import FakeProfiler, FakeToolchain
from tests.unit.factories import KERNEL, digest, make_call, make_comparison, make_run, make_trial, suite_case

PROPOSAL = Proposal(candidate=Candidate(source="x"), origin="test")


def test_a_borrowed_toolchain_takes_a_compile_slot():
    toolchain: Any = FakeToolchain()
    evaluator = Evaluator(lambda: toolchain, compile_slots=1)
    with evaluator.borrowed_toolchain() as lent:
        assert lent is toolchain
        assert not evaluator._compile_slots.acquire(blocking=False)
    assert evaluator._compile_slots.acquire(blocking=False)


def test_without_a_compiler_nothing_is_lent():
    def discover() -> Any:
        raise InfrastructureError("compiler_missing", "none")

    with Evaluator(discover, 1).borrowed_toolchain() as lent:
        assert lent is None


@pytest.mark.parametrize(("origin", "measured"), [("measured", True), ("replayed", False)])
def test_only_measuring_keeps_a_device_busy(origin, measured):
    toolchain: Any = FakeToolchain()
    meter = Meter()
    profiler = FakeProfiler(origin=origin)
    seen: list[float | None] = []
    profiler.on_evaluate = lambda: seen.append(meter.progress().busy_share)
    Evaluator(lambda: toolchain, 1, meter).evaluate(suite_case(), PROPOSAL, profiler)
    assert (meter.progress().busy_share is not None) is measured
    assert (seen != [None]) is measured


def evaluated(profiler: FakeProfiler, safety: Any, toolchain: Any = None) -> tuple[Evidence, Any]:
    toolchain = toolchain or FakeToolchain()
    found = Evaluator(lambda: toolchain, 1, safety=safety).evaluate(suite_case(), PROPOSAL, profiler)
    assert found.evidence is not None
    return found.evidence, found.verdict


FULL = ["memcheck", "initcheck", "synccheck", "racecheck"]


@pytest.mark.parametrize(
    ("level", "tools", "safe"),
    [("off", [], Safe.NOT_RUN), ("memcheck", ["memcheck"], Safe.YES), ("full", FULL, Safe.YES)],
)
def test_the_level_says_which_tools_run(level, tools, safe):
    profiler = FakeProfiler()
    evidence, verdict = evaluated(profiler, level)
    assert [name.removeprefix("sanitize ") for name in profiler.calls if name.startswith("sanitize")] == tools
    assert [safety.tool for safety in evidence.safety if safety.status is ToolStatus.OK] == tools
    assert verdict.correct
    assert verdict.safe is safe


def test_off_says_that_it_is_off():
    _, verdict = evaluated(FakeProfiler(), "off")
    assert verdict.safety["memcheck"].message == "switched off: --safety off"
    assert verdict.safety["guards"].safe is Safe.YES


def test_counts_come_before_the_tools_that_no_number_waits_for():
    profiler = FakeProfiler()
    evaluated(profiler, "full")
    assert list(profiler.calls) == [
        "evaluate",
        "sanitize memcheck",
        "instructions",
        *(f"sanitize {t}" for t in FULL[1:]),
    ]


class Finding(FakeProfiler):
    """One tool has a finding."""

    tool = "memcheck"

    def sanitize(self, case: Any, built: Any, tool: Any) -> SafetyEvidence:
        clean = super().sanitize(case, built, tool)
        if tool != self.tool:
            return clean
        finding = SafetyFinding(kind="Invalid read", message="at gemm(int *)+0x80", kernel="gemm(int *)", offset=128)
        return clean.model_copy(update={"findings": (finding,), "finding_count": 1})


def test_behind_a_finding_of_memcheck_no_other_tool_runs():
    toolchain: Any = FakeToolchain()
    toolchain.source_lines = lambda *_: None
    profiler = Finding()
    _, verdict = evaluated(profiler, "full", toolchain)
    assert verdict.rule == "memory.memcheck"
    assert "sanitize racecheck" not in profiler.calls


@pytest.mark.parametrize("status", [RunStatus.CRASHED, RunStatus.RUNTIME_ERROR, RunStatus.TIMEOUT])
def test_what_did_not_end_in_good_order_gets_no_further_tool(status):
    profiler = FakeProfiler()
    profiler.run = make_run(status=status, trials=())
    evaluated(profiler, "full")
    assert "sanitize racecheck" not in profiler.calls


def test_a_wrong_result_is_looked_at_by_all_tools():
    profiler = FakeProfiler()
    wrong = make_trial(checks=(make_call(outputs=(make_comparison(mismatched=4),)),), timing=None)
    profiler.run = make_run(trials=(wrong,))
    evaluated(profiler, "full")
    assert profiler.calls["sanitize racecheck"] == 1


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_findings_get_their_source_line(tool):
    table = LineTable(kernels={KERNEL: KernelLines(code_sha256=digest("d"), starts=(0, 112), lines=((3,), (41, 90)))})
    toolchain: Any = FakeToolchain()
    toolchain.source_lines = lambda *_: SourceLines(table)
    profiler = Finding()
    profiler.tool = tool
    evidence, verdict = evaluated(profiler, "full", toolchain)
    (finding,) = [finding for safety in evidence.safety for finding in safety.findings]
    assert finding.lines == (41, 90)
    assert "at line 41" in verdict.safe_message
    assert verdict.safe is Safe.NO


def test_a_line_that_cannot_be_found_is_no_fault():
    def source_lines(*_: Any) -> Any:
        raise InfrastructureError("compiler_crashed", "killed")

    toolchain: Any = FakeToolchain()
    toolchain.source_lines = source_lines
    evidence, _ = evaluated(Finding(), "memcheck", toolchain)
    assert evidence.safety[0].findings[0].lines == ()


def test_stored_evidence_is_judged_as_it_is():
    profiler = FakeProfiler(origin="replayed")
    _, verdict = evaluated(profiler, "full")
    assert not any(name.startswith("sanitize") for name in profiler.calls)
    assert verdict.safety["racecheck"].safe is Safe.NOT_RUN
