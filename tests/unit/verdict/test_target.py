from typing import Any

import pytest

from ptxbench.records import BuildStatus, Target, ToolStatus, Verdict
from ptxbench.verdict import Flag, TargetRule, judge
from tests.unit.factories import (
    HGMMA,
    KERNEL,
    digest,
    make_build,
    make_call,
    make_comparison,
    make_counts,
    make_evidence,
    make_instructions,
    make_run,
    make_trial,
    suite_case,
    unbuilt,
)

DEMANGLED = "gemm(const __nv_bfloat16 *, const __nv_bfloat16 *, __nv_bfloat16 *, int, int, int)"
SETUP = "_Z5setupv"


def verdict_of(build: Any = None, **changes: Any) -> Verdict:
    return judge(suite_case(), build or make_build(), make_evidence(**changes))


def profiled(*counts: Any, **changes: Any) -> Verdict:
    return verdict_of(instructions=make_instructions(*counts, **changes))


def answer(verdict: Verdict) -> tuple[Target, str, bool | None]:
    return verdict.target, verdict.target_rule, verdict.target_present


def test_executed_sums_predicate_enabled_threads_per_family() -> None:
    other = make_counts("HGMMA.64x64x16.F32.BF16", 64)
    tma = make_counts("UTMALDG.2D", 1)
    verdict = profiled(make_counts(HGMMA, 320), other, tma, make_counts("FFMA", 5), make_counts("UTMACCTL.PF", 9))
    assert answer(verdict) == (Target.EXECUTED, TargetRule.EXECUTED, True)
    assert verdict.families == {"HGMMA": 384, "UTMALDG": 1}


@pytest.mark.parametrize("counts", [[make_counts(HGMMA, 0)], [make_counts("FFMA", 99)], [make_counts("UTMACCTL", 9)]])
def test_present_and_never_executed(counts: Any) -> None:
    verdict = profiled(*counts)
    assert answer(verdict) == (Target.NOT_EXECUTED, TargetRule.NOT_EXECUTED, True)
    assert verdict.families == {"HGMMA": 0, "UTMALDG": 0}


def test_kernels_without_counts_and_counts_without_kernels_are_seen() -> None:
    assert answer(profiled(counts=())) == (Target.NOT_EXECUTED, TargetRule.NOT_EXECUTED, True)
    assert answer(profiled(kernels=())) == (Target.EXECUTED, TargetRule.EXECUTED, True)
    assert answer(profiled(counts=(), kernels=())) == (Target.UNKNOWN, TargetRule.TOOL_FAILED, True)


def test_issued_but_predicated_off_is_not_executed() -> None:
    off = make_counts(HGMMA, 0).model_copy(update={"inst_executed": 4224})
    assert profiled(off).target is Target.NOT_EXECUTED


@pytest.mark.parametrize("opcodes", [{"FFMA": 3}, {"HGMMA": 0}, {"UTMACCTL": 4, "UBLKCP": 2}, {}])
def test_absent_is_not_executed_whatever_the_tool_says(opcodes: dict[str, int]) -> None:
    assert answer(verdict_of(make_build(opcodes))) == (Target.NOT_EXECUTED, TargetRule.ABSENT, False)


def test_absent_is_not_executed_without_evidence_and_when_incorrect() -> None:
    generic = make_build({"HMMA": 16})
    assert answer(judge(suite_case(), generic, None)) == (Target.NOT_EXECUTED, TargetRule.ABSENT, False)
    bad = make_trial(checks=(make_call(outputs=(make_comparison(mismatched=1),)),))
    assert answer(verdict_of(generic, run=make_run(trials=(bad,))))[:2] == (Target.NOT_EXECUTED, TargetRule.ABSENT)
    assert answer(verdict_of(generic, run=make_run(trials=(make_trial(guards_intact=False),))))[2] is False


def test_present_in_an_incorrect_candidate_is_unknown() -> None:
    bad = make_trial(checks=(make_call(outputs=(make_comparison(mismatched=1),)),))
    verdict = verdict_of(run=make_run(trials=(bad,)))
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.NOT_PROFILED, True)
    assert verdict.families == {"HGMMA": 8, "UTMALDG": 2}


def test_nothing_built() -> None:
    verdict = judge(suite_case(), unbuilt(BuildStatus.COMPILE_ERROR), None)
    assert answer(verdict) == (Target.NOT_EXECUTED, TargetRule.NO_OBJECT, None)


def test_not_inspected_is_unknown() -> None:
    verdict = verdict_of(make_build({}, inspection="unavailable"))
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.NOT_INSPECTED, None)
    assert verdict.correct


@pytest.mark.parametrize(
    ("status", "rule"),
    [
        (ToolStatus.NOT_RUN, TargetRule.NOT_RUN),
        (ToolStatus.FAILED, TargetRule.TOOL_FAILED),
        (ToolStatus.TIMEOUT, TargetRule.TOOL_FAILED),
        (ToolStatus.UNAVAILABLE, TargetRule.TOOL_FAILED),
    ],
)
def test_a_tool_without_results_is_unknown_whatever_it_left(status: ToolStatus, rule: TargetRule) -> None:
    verdict = profiled(status=status, message="ERR_NVGPUCTRPERM")
    assert answer(verdict) == (Target.UNKNOWN, rule, True)
    assert "ERR_NVGPUCTRPERM" in verdict.target_message


def test_a_tool_that_saw_no_kernel_failed() -> None:
    instructions = make_instructions().model_copy(update={"counts": (), "kernels": ()})
    assert answer(verdict_of(instructions=instructions))[:2] == (Target.UNKNOWN, TargetRule.TOOL_FAILED)


@pytest.mark.parametrize("where", ["counts", "kernels"])
def test_a_kernel_of_somebody_else_is_unknown(where: str) -> None:
    foreign = "void cutlass::device_kernel<A>(T1::Params)"
    if where == "counts":
        verdict = profiled(make_counts(), make_counts(kernel=foreign))
    else:
        verdict = profiled(kernels=(KERNEL, foreign))
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.FOREIGN_KERNEL, True)
    assert foreign in verdict.target_message


@pytest.mark.parametrize("shown", [KERNEL, DEMANGLED, "gemm"])
def test_kernel_names_of_any_tool(shown: str) -> None:
    assert profiled(make_counts(kernel=shown), kernels=(shown,)).target is Target.EXECUTED


def test_other_outputs_under_the_profiler() -> None:
    verdict = profiled(outputs_match=False)
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.DIFFERS_UNDER_PROFILER, True)
    assert verdict.flags == (Flag.DIFFERS_UNDER_PROFILER,)
    assert verdict.correct
    assert verdict.speedup is not None
    assert verdict.useful_share is None


def two_kernels() -> Any:
    build = make_build()
    setup = build.cubins[0].kernels[0].model_copy(update={"kernel": SETUP})
    cubin = build.cubins[0].model_copy(update={"kernels": (*build.cubins[0].kernels, setup)})
    return build.model_copy(update={"cubins": (cubin,)})


def test_a_target_kernel_that_only_the_profiler_sees_is_unknown() -> None:
    instructions = make_instructions(make_counts("FFMA", 32), make_counts(kernel=SETUP), kernels=(SETUP, KERNEL))
    verdict = verdict_of(two_kernels(), instructions=instructions)
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.DIFFERS_UNDER_PROFILER, True)
    assert "only in kernels that do not run when timed" in verdict.target_message


def test_a_setup_kernel_beside_the_real_one_is_no_difference_and_does_not_count() -> None:
    instructions = make_instructions(make_counts(threads=32), make_counts(kernel=SETUP), kernels=(SETUP, KERNEL))
    verdict = verdict_of(two_kernels(), instructions=instructions)
    assert verdict.target is Target.EXECUTED
    assert verdict.families["HGMMA"] == 32


def test_a_timed_kernel_that_the_profiler_does_not_see_is_unknown() -> None:
    launches = (*make_run().launches, make_run().launches[0].model_copy(update={"name": SETUP}))
    verdict = verdict_of(two_kernels(), run=make_run(launches=launches))
    assert answer(verdict)[:2] == (Target.UNKNOWN, TargetRule.DIFFERS_UNDER_PROFILER)
    assert "_Z5setupv runs when timed" in verdict.target_message


def test_without_recorded_launches_every_kernel_counts() -> None:
    assert verdict_of(run=make_run(launches=())).target is Target.EXECUTED


def test_blackwell_families() -> None:
    case = suite_case(arch="b200")
    build = make_build(
        {"UTCHMMA": 4, "UTCATOMSWS": 1, "UTMALDG": 3, "LDTM": 2}, arch="b200", candidate_sha256=digest("a")
    )
    verdict = judge(case, build, None)
    assert answer(verdict) == (Target.UNKNOWN, TargetRule.NO_EVIDENCE, True)
    assert verdict.families == {"LDTM": 2, "UTCATOMSWS": 1, "UTCHMMA": 4}
    tma_alone = make_build({"UTMALDG": 3, "UTMASTG": 1}, arch="b200")
    assert judge(case, tma_alone, None).target is Target.NOT_EXECUTED
