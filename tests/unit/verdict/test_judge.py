"""The judge as a whole: one outcome per turn, the first rule that applies, nothing passed without proof."""

from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.records import (
    Build,
    BuildStatus,
    Evidence,
    Finding,
    InfrastructureFault,
    Outcome,
    RunStatus,
    Safe,
    Target,
    ToolStatus,
    Verdict,
)
from ptxbench.verdict import Flag, Rule, TargetRule, judge, judge_extraction_error, judge_infrastructure
from tests.unit.factories import (
    DEVICE,
    digest,
    make_baseline,
    make_build,
    make_call,
    make_comparison,
    make_evidence,
    make_instructions,
    make_run,
    make_safety,
    make_timing,
    make_trial,
    suite_case,
    unbuilt,
)
from tests.unit.verdict.parts import one_bad_output, one_bad_trial, run_verdict, verdict_of


def test_everything_right() -> None:
    verdict = verdict_of()
    assert (verdict.outcome, verdict.rule) == (Outcome.CORRECT, Rule.PASSED)
    assert verdict.message == "every element within atol 0.01 + rtol 0.01 in 6 checked calls of 3 trials"
    assert (verdict.target, verdict.target_rule) == (Target.EXECUTED, TargetRule.EXECUTED)
    assert (verdict.safe, verdict.safe_message) == (
        Safe.YES,
        "no findings by memcheck; initcheck, synccheck, racecheck did not run",
    )
    assert (verdict.latency_ms, verdict.latency_source, verdict.baseline_ms) == (0.8, "cupti", 0.74)
    assert verdict.speedup == pytest.approx(0.925)
    assert (verdict.relative_rms, verdict.mismatch_share) == (0.002, 0.0)
    assert verdict.flags == ()
    assert verdict.correct


def test_the_same_inputs_give_the_same_verdict_after_a_trip_through_json() -> None:
    build, evidence = make_build(), make_evidence()
    again = judge(
        suite_case(),
        Build.model_validate_json(build.model_dump_json()),
        Evidence.model_validate_json(evidence.model_dump_json()),
    )
    assert again == judge(suite_case(), build, evidence)
    assert Verdict.model_validate_json(again.model_dump_json()) == again


# Before running


@pytest.mark.parametrize(
    ("finding", "rule"),
    [
        ("library-header", Rule.SCREEN_LIBRARY_HEADER),
        ("device-code-loading", Rule.SCREEN_DEVICE_CODE_LOADING),
        ("something-new", Rule.SCREEN_OTHER),
        ("hash-mismatch", Rule.SCREEN_OTHER),
    ],
)
def test_screened(finding: str, rule: Rule) -> None:
    hit = Finding(rule=finding, message="includes cublas_v2.h", file="kernel.cu", line=3)
    verdict = judge(suite_case(), unbuilt(BuildStatus.SCREENED, findings=(hit, hit)), make_evidence())
    assert (verdict.outcome, verdict.rule) == (Outcome.SCREENED, rule)
    assert verdict.message == "includes cublas_v2.h (line 3), and 1 more"
    assert (verdict.target, verdict.target_rule) == (Target.NOT_EXECUTED, TargetRule.NO_OBJECT)
    assert verdict.latency_ms is None


def test_screened_without_a_finding_is_still_screened() -> None:
    verdict = judge(suite_case(), unbuilt(BuildStatus.SCREENED), None)
    assert (verdict.outcome, verdict.rule) == (Outcome.SCREENED, Rule.SCREEN_OTHER)


def test_compile_error_quotes_the_first_error() -> None:
    log = "kernel.cu(3): warning: unused\nkernel.cu(9): error: expected a \x1b[31m;\nkernel.cu(10): error: another\n"
    verdict = judge(suite_case(), unbuilt(BuildStatus.COMPILE_ERROR, log=log), None)
    assert (verdict.outcome, verdict.rule) == (Outcome.COMPILE_ERROR, Rule.COMPILE_ERROR)
    assert verdict.message == "the compiler reported: kernel.cu(9): error: expected a [31m;"


def test_compile_timeout() -> None:
    verdict = judge(suite_case(), unbuilt(BuildStatus.COMPILE_ERROR, timed_out=True), None)
    assert (verdict.outcome, verdict.rule) == (Outcome.COMPILE_ERROR, Rule.COMPILE_TIMEOUT)


def test_extraction_error() -> None:
    verdict = judge_extraction_error("expected one ```cuda block,\nfound none")
    assert (verdict.outcome, verdict.rule) == (Outcome.EXTRACTION_ERROR, Rule.EXTRACTION)
    assert verdict.message == "expected one ```cuda block, found none"
    assert (verdict.target, verdict.safe) == (Target.NOT_EXECUTED, Safe.NOT_RUN)


def test_infrastructure_blames_nobody() -> None:
    verdict = judge_infrastructure(InfrastructureFault(kind="oracle_died", message="the oracle ended"))
    assert (verdict.outcome, verdict.rule) == (Outcome.INFRASTRUCTURE_ERROR, Rule.INFRASTRUCTURE)
    assert verdict.message == "oracle_died: the oracle ended"
    assert (verdict.target, verdict.safe) == (Target.UNKNOWN, Safe.UNKNOWN)


def test_a_build_for_another_architecture_is_an_error_of_the_caller() -> None:
    with pytest.raises(InputError, match="expected a build for h100, found one for b200"):
        judge(suite_case(), make_build(arch="b200"), None)


# Evidence that proves nothing


def test_no_evidence_is_unknown() -> None:
    verdict = judge(suite_case(), make_build(), None)
    assert (verdict.outcome, verdict.rule) == (Outcome.UNKNOWN, Rule.EVIDENCE_NONE)
    assert (verdict.target, verdict.target_rule) == (Target.UNKNOWN, TargetRule.NO_EVIDENCE)
    assert verdict.families == {"HGMMA": 8, "UTMALDG": 2}
    assert verdict.safe is Safe.NOT_RUN


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"candidate_sha256": digest("f")}, "candidate_sha256"),
        ({"cubin_sha256": digest("f")}, "cubin_sha256"),
        ({"definition": "gemm_n1_k1"}, "definition"),
        ({"workload_uuid": "another"}, "workload"),
        ({"arch": "b200"}, "architecture"),
        ({"device": DEVICE.model_copy(update={"compute_capability": (10, 0)})}, "compute capability"),
    ],
)
def test_evidence_of_something_else_is_unknown_and_nothing_of_it_is_shown(changes: Any, named: str) -> None:
    verdict = verdict_of(**changes)
    assert (verdict.outcome, verdict.rule) == (Outcome.UNKNOWN, Rule.EVIDENCE_HASH_MISMATCH)
    assert named in verdict.message
    assert verdict.target is Target.UNKNOWN
    assert (verdict.latency_ms, verdict.speedup, verdict.relative_rms) == (None, None, None)
    assert verdict.safe is Safe.NOT_RUN


def test_another_host_compiler_is_not_another_candidate() -> None:
    assert verdict_of(so_sha256=digest("f")).correct


def test_several_cubins_or_none_have_one_identity_together() -> None:
    cubin = make_build().cubins[0]
    two = make_build(cubins=(cubin, cubin.model_copy(update={"sha256": digest("e")})))
    swapped = make_build(cubins=tuple(reversed(two.cubins)))
    none = make_build(cubins=())
    assert two.cubin_sha256 == swapped.cubin_sha256
    assert len({build.cubin_sha256 for build in (make_build(), two, none)}) == 3
    assert verdict_of(two, cubin_sha256=two.cubin_sha256).correct
    assert verdict_of(two).rule == Rule.EVIDENCE_HASH_MISMATCH


@pytest.mark.parametrize("change", [{"atol": 0.1}, {"rtol": 0.0}])
def test_another_tolerance_is_unknown_whatever_it_found(change: dict[str, Any]) -> None:
    for mismatched in (0, 5):
        verdict = one_bad_output(mismatched=mismatched, **change)
        assert (verdict.outcome, verdict.rule) == (Outcome.UNKNOWN, Rule.EVIDENCE_TOLERANCE)


STRANGER = make_comparison().model_copy(update={"name": "D"})


@pytest.mark.parametrize(
    ("trials", "named"),
    [
        ((), "0 trials instead of 3"),
        ((make_trial(),) * 2, "2 trials instead of 3"),
        ((make_trial(), make_trial(), make_trial(checks=())), "trial 2 has no checked correctness call"),
        ((make_trial(checks=(make_call(4),)),) * 3, "trial 0 has no checked correctness call"),
        ((make_trial(checks=(make_call(outputs=()),)),) * 3, r"compared [] instead of ['C']"),
        ((make_trial(checks=(make_call(outputs=(make_comparison(),) * 2),)),) * 3, "compared ['C', 'C']"),
        ((make_trial(checks=(make_call(outputs=(STRANGER,)),)),) * 3, "compared ['D'] instead"),
        ((make_trial(checks=(make_call(outputs=(make_comparison(elements=9),)),)),) * 3, "compared 9 elements"),
    ],
)
def test_incomplete_evidence_is_never_a_pass(trials: Any, named: str) -> None:
    verdict = run_verdict(trials=trials)
    assert (verdict.outcome, verdict.rule) == (Outcome.UNKNOWN, Rule.EVIDENCE_INCOMPLETE)
    assert named in verdict.message


def test_an_unexpected_output_is_the_evidences_fault() -> None:
    verdict = one_bad_trial(checks=(make_call(outputs=(make_comparison(), STRANGER)),))
    assert verdict.rule == Rule.EVIDENCE_INCOMPLETE


# Running


@pytest.mark.parametrize(
    ("status", "outcome", "rule"),
    [
        (RunStatus.TIMEOUT, Outcome.TIMEOUT, Rule.RUN_TIMEOUT),
        (RunStatus.LOAD_ERROR, Outcome.RUNTIME_ERROR, Rule.RUN_LOAD),
        (RunStatus.RUNTIME_ERROR, Outcome.RUNTIME_ERROR, Rule.RUN_ERROR),
        (RunStatus.CRASHED, Outcome.RUNTIME_ERROR, Rule.RUN_CRASH),
    ],
)
def test_a_run_that_did_not_complete(status: RunStatus, outcome: Outcome, rule: Rule) -> None:
    verdict = run_verdict(status=status, stage="check", message="an illegal\n address", error_code=700, trials=())
    assert (verdict.outcome, verdict.rule) == (outcome, rule)
    assert verdict.message == f"{status.value} in stage check [code 700]: an illegal address"
    assert (verdict.target, verdict.target_rule) == (Target.UNKNOWN, TargetRule.NOT_PROFILED)
    # An illegal address is undefined behaviour, whether or not a tool found where.
    assert verdict.safe is (Safe.UNKNOWN if status is RunStatus.RUNTIME_ERROR else Safe.YES)


def test_a_runtime_error_quotes_memcheck() -> None:
    run = make_run(status=RunStatus.RUNTIME_ERROR, message="illegal address", trials=())
    verdict = verdict_of(run=run, safety=(make_safety("memcheck", "Invalid __global__ write of size 4"),))
    assert verdict.rule == Rule.RUN_ERROR
    assert "Invalid __global__ write of size 4 in gemm at kernel.cu:41 (1 finding)" in verdict.message
    assert verdict.safe is Safe.NO


@pytest.mark.parametrize(
    "trial", [make_trial(guards_intact=False), make_trial(checks=(make_call(guards_intact=False),))]
)
def test_an_overwritten_guard_comes_before_right_numbers(trial: Any) -> None:
    verdict = run_verdict(trials=(make_trial(), trial, make_trial()))
    assert (verdict.outcome, verdict.rule) == (Outcome.MEMORY_ERROR, Rule.MEMORY_GUARD)
    assert "trial 1" in verdict.message
    assert verdict.safe is Safe.NO
    assert (verdict.target, verdict.target_rule) == (Target.UNKNOWN, TargetRule.UNDEFINED_BEHAVIOUR)


@pytest.mark.parametrize("status", [ToolStatus.OK, ToolStatus.TIMEOUT])
def test_memcheck_findings_come_before_right_numbers(status: ToolStatus) -> None:
    verdict = verdict_of(safety=(make_safety("memcheck", "Invalid read", status=status, finding_count=239_201),))
    assert (verdict.outcome, verdict.rule) == (Outcome.MEMORY_ERROR, Rule.MEMORY_MEMCHECK)
    assert verdict.message == "memcheck: InvalidWrite: Invalid read in gemm at kernel.cu:41 (239201 findings)"
    assert verdict.safe is Safe.NO
    assert verdict.speedup is None


def test_findings_of_other_sanitizers_leave_the_outcome() -> None:
    verdict = verdict_of(safety=(make_safety(), make_safety("racecheck", "a hazard")))
    assert verdict.correct
    assert verdict.safe is Safe.NO


@pytest.mark.parametrize(
    ("safety", "safe"),
    [
        ((), Safe.NOT_RUN),
        ((make_safety(status=ToolStatus.NOT_RUN),), Safe.NOT_RUN),
        ((make_safety(status=ToolStatus.FAILED),), Safe.UNKNOWN),
        ((make_safety(status=ToolStatus.UNAVAILABLE),), Safe.UNKNOWN),
        ((make_safety(), make_safety("racecheck", status=ToolStatus.TIMEOUT)), Safe.UNKNOWN),
        ((make_safety("racecheck"),), Safe.NOT_RUN),
        ((make_safety(), make_safety("racecheck", status=ToolStatus.NOT_RUN)), Safe.YES),
    ],
)
def test_memcheck_that_tells_nothing_leaves_the_outcome(safety: Any, safe: Safe) -> None:
    verdict = verdict_of(safety=safety)
    assert verdict.correct
    assert verdict.safe is safe


# Several faults


FAULTS = (
    (Rule.RUN_TIMEOUT, "run", {"status": RunStatus.TIMEOUT}),
    (Rule.SCREEN_FOREIGN_KERNEL, "launch", {"name": "_ZN7cutlass6KernelIvEEvv"}),
    (Rule.MEMORY_GUARD, "call", {"guards_intact": False}),
    (Rule.MEMORY_MEMCHECK, "safety", {"finding_count": 1}),
    (Rule.INPUTS_MODIFIED, "call", {"inputs_intact": False}),
    (Rule.SHAPE, "output", {"shape": (1, 1)}),
    (Rule.DTYPE, "output", {"dtype": "float32"}),
    (Rule.EVIDENCE_TOLERANCE, "output", {"atol": 0.5}),
    (Rule.MISMATCH, "output", {"mismatched": 1}),
    (Rule.EVIDENCE_INCOMPLETE, "output", {"elements": 1}),
)


@pytest.mark.parametrize("mended", range(len(FAULTS)))
def test_of_several_faults_the_first_decides(mended: int) -> None:
    changes: dict[str, dict[str, Any]] = {part: {} for part in ("run", "launch", "call", "safety", "output")}
    for _, part, change in FAULTS[mended:]:
        changes[part].update(change)
    call = make_call(outputs=(make_comparison(**changes["output"]),), **changes["call"])
    run = make_run(
        trials=(make_trial(checks=(call,)),),
        launches=(make_run().launches[0].model_copy(update=changes["launch"]),),
        **changes["run"],
    )
    assert verdict_of(run=run, safety=(make_safety(**changes["safety"]),)).rule == FAULTS[mended][0]


# Remarks


def test_low_precision_is_remarked_against_the_library() -> None:
    assert one_bad_output(rms_error=0.0079).flags == ()
    assert one_bad_output(rms_error=0.0081).flags == (Flag.LOW_PRECISION,)
    without = make_baseline(relative_rms={})
    trials = (make_trial(checks=(make_call(outputs=(make_comparison(rms_error=0.5),)), make_call(3))),) * 3
    assert run_verdict(trials=trials, baseline=without).flags == ()


def test_flags_are_sorted_and_of_all_kinds() -> None:
    drift = make_baseline(drift_span_ns=(830_000,))
    run = make_run(trials=(make_trial(timing=make_timing(stray=1)),) * 3, baseline=drift)
    verdict = verdict_of(run=run, instructions=make_instructions(outputs_match=False))
    assert verdict.flags == ("baseline_drift", "differs_under_profiler", "stray_activity")


def test_a_kernel_of_somebody_else_is_screened() -> None:
    launch = make_run().launches[0].model_copy(update={"name": "_ZN7cutlass6KernelIvEEvv"})
    verdict = run_verdict(launches=(*make_run().launches, launch))
    assert (verdict.outcome, verdict.rule) == (Outcome.SCREENED, Rule.SCREEN_FOREIGN_KERNEL)
    assert "_ZN7cutlass6KernelIvEEvv" in verdict.message
    unnamed = make_build(cubins=(make_build().cubins[0].model_copy(update={"kernels": ()}),), inspection="unavailable")
    assert verdict_of(unnamed, run=make_run(launches=(launch,))).correct
    assert verdict_of(make_build(cubins=unnamed.cubins), run=make_run(launches=(launch,))).rule == verdict.rule
    # Without a disassembler the object's kernels are known by name all the same.
    assert verdict_of(make_build(inspection="unavailable"), run=make_run(launches=(launch,))).rule == verdict.rule
