"""``safe`` for each check, and for all together."""

from __future__ import annotations

from typing import Any

import pytest

from ptxbench.profiler.sanitizer import parse
from ptxbench.records import (
    SAFETY_TOOLS,
    Evidence,
    FamilyCheck,
    KeptMemory,
    RunStatus,
    Safe,
    SafetyFinding,
    SafetyTool,
    ToolStatus,
)
from ptxbench.verdict.safety import describe_findings, judge_safety
from tests.unit.factories import make_call, make_comparison, make_evidence, make_run, make_safety, make_trial
from tests.unit.profiler.samples import report

ALL = tuple(make_safety(tool) for tool in SAFETY_TOOLS)


def kept(*amounts: int, **changes: Any) -> tuple[KeptMemory, ...]:
    return tuple(
        KeptMemory(**{"calls": calls, "allocations": amount, "allocated_bytes": 64 * amount, **changes})
        for calls, amount in zip((1, 4, 8), amounts, strict=False)
    )


def checks(**changes: Any) -> dict[str, Safe]:
    return {name: check.safe for name, check in judge_safety(make_evidence(**changes)).checks.items()}


def test_all_four_tools_and_the_guards() -> None:
    decision = judge_safety(make_evidence(safety=ALL))
    assert decision.safe is Safe.YES
    assert decision.message == "no findings by memcheck, initcheck, synccheck, racecheck"
    assert list(decision.checks) == ["guards", *SAFETY_TOOLS]
    assert {check.safe for check in decision.checks.values()} == {Safe.YES}


def test_memcheck_alone_says_what_did_not_run() -> None:
    decision = judge_safety(make_evidence())
    assert decision.safe is Safe.YES
    assert decision.message == "no findings by memcheck; initcheck, synccheck, racecheck did not run"
    assert decision.checks["racecheck"].safe is Safe.NOT_RUN


@pytest.mark.parametrize("tool", SAFETY_TOOLS)
def test_a_finding_of_any_tool_is_no_and_is_that_tools(tool: SafetyTool) -> None:
    found = tuple(make_safety(each, "bad") if each == tool else make_safety(each) for each in SAFETY_TOOLS)
    decision = judge_safety(make_evidence(safety=found))
    assert decision.safe is Safe.NO
    assert {name for name, check in decision.checks.items() if check.safe is Safe.NO} == {tool}
    assert decision.message.startswith(f"{tool}: ")


@pytest.mark.parametrize("tool", SAFETY_TOOLS)
@pytest.mark.parametrize("status", [ToolStatus.FAILED, ToolStatus.TIMEOUT, ToolStatus.UNAVAILABLE])
def test_a_tool_that_says_nothing_leaves_it_unknown(tool: SafetyTool, status: ToolStatus) -> None:
    found = tuple(make_safety(each, status=status if each == tool else ToolStatus.OK) for each in SAFETY_TOOLS)
    decision = judge_safety(make_evidence(safety=found))
    assert (decision.safe, decision.checks[tool].safe) == (Safe.UNKNOWN, Safe.UNKNOWN)


def test_no_comes_before_unknown() -> None:
    found = (make_safety(), make_safety("initcheck", status=ToolStatus.TIMEOUT), make_safety("racecheck", "a race"))
    decision = judge_safety(make_evidence(safety=found))
    assert decision.safe is Safe.NO
    assert decision.message.startswith("racecheck")


def test_a_run_with_findings_comes_before_one_without() -> None:
    """Whichever was kept first; also one that was ended before its tool had a status."""
    found = make_safety("memcheck", "bad")
    for runs in ((make_safety(), found), (found, make_safety())):
        assert checks(safety=runs)["memcheck"] is Safe.NO
    assert checks(safety=(make_safety("memcheck", "bad", status=ToolStatus.NOT_RUN),))["memcheck"] is Safe.NO


def test_guards_speak_for_themselves() -> None:
    broken = make_run(trials=(make_trial(), make_trial(checks=(make_call(guards_intact=False),))))
    decision = judge_safety(make_evidence(run=broken, safety=ALL))
    assert (decision.safe, decision.checks["guards"].safe) == (Safe.NO, Safe.NO)
    assert decision.checks["memcheck"].safe is Safe.YES


def test_a_guard_overwritten_on_another_family_is_unsafe() -> None:
    family = FamilyCheck(family="spiky", call=make_call(guards_intact=False))
    decision = judge_safety(make_evidence(run=make_run(families=(family,)), safety=ALL))
    assert decision.safe is Safe.NO
    assert "family spiky" in decision.message


def test_nothing_that_ran_has_no_guards() -> None:
    crashed = make_run(status=RunStatus.CRASHED, trials=())
    assert checks(run=crashed, safety=())["guards"] is Safe.NOT_RUN


@pytest.mark.parametrize(
    ("status", "code", "safe"),
    [
        (RunStatus.RUNTIME_ERROR, 700, Safe.UNKNOWN),
        (RunStatus.RUNTIME_ERROR, 716, Safe.UNKNOWN),
        (RunStatus.RUNTIME_ERROR, 1, Safe.YES),
        (RunStatus.RUNTIME_ERROR, None, Safe.YES),
        (RunStatus.CRASHED, -11, Safe.UNKNOWN),
        (RunStatus.CRASHED, None, Safe.YES),
    ],
)
def test_a_fault_that_no_tool_explains_is_unknown(status: RunStatus, code: int | None, safe: Safe) -> None:
    evidence = make_evidence(run=make_run(status=status, error_code=code, trials=()), safety=ALL)
    assert judge_safety(evidence).safe is safe


def test_a_fault_that_a_tool_explains_is_no() -> None:
    run = make_run(status=RunStatus.RUNTIME_ERROR, error_code=700, trials=())
    assert judge_safety(make_evidence(run=run, safety=(make_safety("memcheck", "bad"),))).safe is Safe.NO


# What is kept


def test_memory_that_is_kept_is_honest_and_told() -> None:
    decision = judge_safety(make_evidence(safety=(make_safety(kept=kept(2, 2, 2)),)))
    assert decision.safe is Safe.YES
    assert decision.checks["memcheck"].message == "no findings; keeps 128 bytes between calls, which do not grow"


def test_memory_that_grows_is_unsafe() -> None:
    decision = judge_safety(make_evidence(safety=(make_safety(kept=kept(1, 4, 8)),)))
    assert decision.safe is Safe.NO
    assert "256 bytes in 4 allocations after 4 calls, 512 bytes in 8 after 8" in decision.message


def test_a_ring_that_is_filled_in_the_first_calls_is_honest() -> None:
    assert checks(safety=(make_safety(kept=kept(1, 4, 4)),))["memcheck"] is Safe.YES


def test_pool_memory_that_grows_is_unsafe() -> None:
    grown = tuple(each.model_copy(update={"pool_bytes": each.calls}) for each in kept(0, 0, 0))
    assert checks(safety=(make_safety(kept=grown),))["memcheck"] is Safe.NO


@pytest.mark.parametrize(
    "changes", [{"kept": kept(1)}, {"kept": kept(1, 4)}, {"kept": kept(0), "kept_unknown": "it did not say"}]
)
def test_whether_it_grows_may_be_unknown(changes: dict[str, Any]) -> None:
    assert checks(safety=(make_safety(**changes),))["memcheck"] is Safe.UNKNOWN


# What a tool did not see


def test_a_hazard_that_may_be_meant_is_unknown() -> None:
    parsed = parse(report("racecheck_warning.txt"))
    found = make_safety("racecheck", message=parsed.remark)
    decision = judge_safety(make_evidence(safety=(make_safety(), found)))
    assert (parsed.findings, decision.safe) == ((), Safe.UNKNOWN)
    assert "sum(int *)+0x70" in decision.message


def test_other_remarks_are_told_and_decide_nothing() -> None:
    found = make_safety(message="Program hit cudaErrorInvalidValue", axes={"M": 8192})
    decision = judge_safety(make_evidence(safety=(found,)))
    assert decision.safe is Safe.YES
    said = "no findings at M 8192; the tool remarked: Program hit cudaErrorInvalidValue"
    assert decision.checks["memcheck"].message == said


def test_outputs_that_were_right_only_without_the_tool_are_unknown() -> None:
    decision = judge_safety(make_evidence(safety=(make_safety(), make_safety("racecheck", outputs_match=False))))
    assert (decision.safe, decision.checks["racecheck"].safe) == (Safe.UNKNOWN, Safe.UNKNOWN)


def test_a_wrong_kernel_is_as_wrong_under_a_tool() -> None:
    wrong = make_run(trials=(make_trial(checks=(make_call(outputs=(make_comparison(mismatched=4),)),)),))
    evidence: Evidence = make_evidence(run=wrong, safety=(make_safety(outputs_match=False),))
    assert judge_safety(evidence).safe is Safe.YES


# Words


def test_a_line_of_the_source_comes_before_the_tools_place() -> None:
    finding = SafetyFinding(
        kind="Invalid read", message="at k+0x10", kernel="k", location="kernel.cu:1", lines=(41, 90)
    )
    described = describe_findings(make_safety(findings=(finding,), finding_count=1))
    assert described == "memcheck: Invalid read: at k+0x10 in k at line 41 (1 finding)"


def test_an_earlier_check_says_its_day() -> None:
    message = judge_safety(make_evidence(safety=(make_safety(checked_before="2026-11-29T16:00:00+00:00"),)))
    assert message.checks["memcheck"].message == "no findings; checked before on 2026-11-29T16:00:00+00:00"
