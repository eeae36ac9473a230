"""From a record to passed, failed or skipped."""

import pytest

from ptxbench.plugin.outcomes import (
    MAX_FEEDBACK_LINES,
    MAX_LOG_LINES,
    describe,
    expect_correct,
    expect_speedup,
    expect_target_instruction,
    floor_of,
    with_feedback,
)
from ptxbench.records import BuildStatus, Finding, RunStatus, ToolStatus
from tests.unit.factories import (
    make_baseline,
    make_build,
    make_evidence,
    make_instructions,
    make_record,
    make_run,
    unbuilt,
)

CORRECT = make_record()
UNKNOWN = make_record(evidence=None)
NO_TARGET = make_record(build=make_build({"FFMA": 40}))
CRASHED = make_record(
    evidence=make_evidence(
        run=make_run(status=RunStatus.CRASHED, trials=(), launches=(), message="signal 11", output_tail="PASSED\n")
    )
)
NOT_PROFILED = make_record(
    evidence=make_evidence(instructions=make_instructions(status=ToolStatus.FAILED, message="ERR_NVGPUCTRPERM"))
)
NO_BASELINE = make_record(evidence=make_evidence(run=make_run(baseline=None)))

CHECKS = [expect_correct, expect_target_instruction, lambda record: expect_speedup(record, 0.5)]


@pytest.mark.parametrize("check", CHECKS)
def test_a_correct_kernel_passes_every_check(check):
    check(CORRECT)


@pytest.mark.parametrize("check", CHECKS)
def test_a_wrong_kernel_fails_every_check_with_the_reason(check):
    with pytest.raises(
        pytest.fail.Exception, match=r"(?s)runtime_error \[run\.crash\]: .*signal 11.*\| PASSED"
    ) as failure:
        check(CRASHED)
    assert not failure.value.pytrace
    assert failure.value.msg is not None
    assert failure.value.msg.startswith("reference-gemm_n7168_k5120-h100-v0-t0-turn0: ")


@pytest.mark.parametrize("check", CHECKS)
def test_what_nobody_ran_is_skipped_never_passed(check):
    with pytest.raises(pytest.skip.Exception, match=r"^unknown: .*\[evidence\.none\]"):
        check(UNKNOWN)


def test_a_target_that_did_not_execute_fails_only_its_check():
    expect_correct(NO_TARGET)
    expect_speedup(NO_TARGET, 0.5)
    with pytest.raises(pytest.fail.Exception, match=r"target instruction not executed: .*\[target\.absent\]"):
        expect_target_instruction(NO_TARGET)


def test_a_target_that_is_unknown_is_skipped():
    expect_correct(NOT_PROFILED)
    with pytest.raises(pytest.skip.Exception, match=r"unknown: .*ERR_NVGPUCTRPERM"):
        expect_target_instruction(NOT_PROFILED)


def test_a_speedup_must_exceed_its_floor():
    assert CORRECT.verdict.speedup == pytest.approx(0.925)
    expect_speedup(CORRECT, 0.92)
    said = r"speedup 0\.925 is not above 1 \(0\.800 ms, 70\.2% of the .*, against 0\.740 ms"
    with pytest.raises(pytest.fail.Exception, match=said):
        expect_speedup(CORRECT, 1.0)
    exact = make_record(
        evidence=make_evidence(
            run=make_run(baseline=make_baseline(span_ns=(800_000,) * 150, drift_span_ns=(800_000,) * 10))
        )
    )
    assert exact.verdict.speedup == 1.0
    with pytest.raises(pytest.fail.Exception):
        expect_speedup(exact, 1.0)


def test_a_speedup_that_is_unknown_is_skipped():
    expect_correct(NO_BASELINE)
    with pytest.raises(pytest.skip.Exception, match=r"unknown: no speedup; flags: .*no_baseline"):
        expect_speedup(NO_BASELINE, 0.5)


@pytest.mark.parametrize(("option", "own", "floor"), [(0.5, 0.6, 0.5), (None, 0.6, 0.6), (None, None, 1.0)])
def test_the_floor_is_the_option_then_the_models_own_then_one(option, own, floor):
    assert floor_of(make_record(min_speedup=own), option) == floor


def test_a_compiler_log_is_quoted_up_to_a_limit():
    log = "\n".join(f"kernel.cu({number}): error: bad" for number in range(100))
    text = describe(make_record(build=unbuilt(BuildStatus.COMPILE_ERROR, log=log), evidence=None))
    assert text.startswith("compile_error [compile.error]: ")
    assert f"kernel.cu({MAX_LOG_LINES - 1}): error: bad" in text
    assert f"kernel.cu({MAX_LOG_LINES}): error" not in text
    assert "... 80 more lines" in text


def test_screen_findings_are_listed():
    findings = (Finding(rule="library-header", message="includes cublas_v2.h", line=3),)
    text = describe(make_record(build=unbuilt(BuildStatus.SCREENED, findings=findings), evidence=None))
    assert "screened [screen.library_header]" in text
    assert "  library-header: includes cublas_v2.h" in text


def test_feedback_comes_behind_the_verdict_and_ends_before_the_advice():
    record = make_record(build=unbuilt(BuildStatus.COMPILE_ERROR, log="kernel.cu(1): error: bad"), evidence=None)
    facts = "\n".join(f"- fact {number}" for number in range(20))
    told = f"Your kernel does not compile.\n\nFacts:\n{facts}\n\nWhat to look at:\n- advice\n\nNext:\n- more\n"
    lines = with_feedback(f"turn0: {describe(record)}", record, told).splitlines()
    assert lines[0].startswith("turn0: compile_error [compile.error]: ")
    assert lines[1:5] == ["  feedback:", "  | Your kernel does not compile.", "  | Facts:", "  | - fact 0"]
    assert lines[MAX_FEEDBACK_LINES + 2 :] == [
        "  | ... 10 more lines",
        "  compiler:",
        "  | kernel.cu(1): error: bad",
    ]
