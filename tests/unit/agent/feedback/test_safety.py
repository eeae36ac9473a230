"""What a model is told of memory safety beside the outcome, over real reports of the tools."""

from __future__ import annotations

from typing import Any

from ptxbench.agent.feedback import feedback
from ptxbench.models import PastTurn
from ptxbench.profiler.sanitizer import parse
from ptxbench.records import SAFETY_TOOLS, KeptMemory, Safe, SafetyEvidence
from ptxbench.verdict import judge
from tests.unit.factories import make_build, make_evidence, make_record, make_safety, suite_case
from tests.unit.profiler.samples import report

SOURCE = "\n".join(f"line {number} of the kernel;" for number in range(1, 9)) + "\ncudaMalloc(&scratch, 64);\n"


def told(*safety: SafetyEvidence) -> str:
    evidence = make_evidence(safety=safety)
    verdict = judge(suite_case(), make_build(), evidence)
    past = PastTurn(make_record(evidence=evidence, verdict=verdict), SOURCE)
    return feedback(suite_case(), past, turns_left=3, toolchain=None)


def found(tool: Any, name: str, *lines: int) -> SafetyEvidence:
    parsed = parse(report(name))
    findings = tuple(finding.model_copy(update={"lines": lines}) for finding in parsed.findings)
    return make_safety(tool, findings=findings, finding_count=parsed.total)


def test_a_race_is_told_with_both_sides_and_what_to_do() -> None:
    text = told(make_safety(), found("racecheck", "racecheck_h200.txt", 5))
    assert "correct and runs at 0.925x the speed of cublas. It is not safe" in text
    assert "racecheck: Error: Race reported between Write access in kernel race." in text
    assert "Write access at line 5:\n       5 | line 5 of the kernel;" in text
    assert "Read access at byte 0xb0" in text
    assert "there must be a barrier" in text
    assert "+0xa0" not in text


def test_an_uninitialized_read_is_told_with_its_line() -> None:
    text = told(make_safety(), found("initcheck", "initcheck_h200.txt", 4, 7))
    assert "At line 4, inlined at line 7:" in text
    assert "must be written before it is read" in text


def test_a_misused_barrier_is_told() -> None:
    text = told(make_safety(), found("synccheck", "synccheck_h200.txt", 6))
    assert "Barrier error detected" in text
    assert "Every thread that a barrier counts" in text


def test_growing_memory_is_told_with_the_lines_that_allocate() -> None:
    kept = tuple(KeptMemory(calls=calls, allocations=calls, allocated_bytes=64 * calls) for calls in (1, 4, 8))
    text = told(make_safety(kept=kept))
    assert "256 bytes in 4 allocations after 4 calls, 512 bytes in 8 after 8" in text
    assert "Your source allocates at line 9." in text
    assert "keep it for later calls" in text


def test_four_clean_tools_are_told_and_memcheck_alone_is_not() -> None:
    assert "No findings by memcheck, initcheck, synccheck, racecheck." in told(*map(make_safety, SAFETY_TOOLS))
    assert "No findings" not in told(make_safety())


def test_a_kernel_that_was_right_only_without_the_tool_is_told_so() -> None:
    text = told(make_safety(), make_safety("racecheck", outputs_match=False))
    assert "racecheck: under it the outputs were wrong" in text
    assert "It is not safe" not in text


def test_the_verdict_of_these_is_what_the_text_rests_on() -> None:
    evidence = make_evidence(safety=(make_safety(), found("racecheck", "racecheck_h200.txt", 5)))
    verdict = judge(suite_case(), make_build(), evidence)
    assert verdict.correct
    assert verdict.safe is Safe.NO
    assert "at line 5" in verdict.safe_message
