"""The judge without a defence: what rested on it no longer counts, and all else does."""

from __future__ import annotations

from typing import Any

import pytest

from ptxbench.profiler.defences import DEFENCES
from ptxbench.records import CORRECTNESS_CALL, DeviceIdentity, Evidence, FamilyCheck, KernelLaunch, Target, Verdict
from ptxbench.selftest.weakened import judge_without
from ptxbench.verdict import judge
from tests.unit import factories as make

FOREIGN = KernelLaunch(
    name="sm90_xmma_gemm", grid=(1, 1, 1), block=(128, 1, 1), dynamic_smem_bytes=0, registers=8, launches_per_call=1.0
)


def run_of(**changes: Any) -> Evidence:
    return make.make_evidence(run=make.make_run(**changes))


def trials_of(**changes: Any) -> Evidence:
    return run_of(trials=tuple(make.make_trial(seed=seed, **changes) for seed in (7, 8, 9)))


def foreign_kernel() -> Evidence:
    return run_of(launches=(*make.make_run().launches, FOREIGN))


def wrong_family() -> Evidence:
    output = make.make_comparison(rms_error=0.5)
    check = FamilyCheck(family="spiky", call=make.make_call(outputs=(output,)))
    return run_of(families=(check,), baseline=make.make_baseline(families={"spiky": {"C": 0.002}}))


def imprecise() -> Evidence:
    call = make.make_call(outputs=(make.make_comparison(rms_error=0.05),))
    return trials_of(checks=(call, call.model_copy(update={"iteration": 3})))


def hidden_host_work() -> Evidence:
    return trials_of(timing=make.make_timing(excess_ns=5_000_000))


WITHHELD = {
    "memcheck": lambda: make.make_evidence(safety=(make.make_safety("memcheck", "Invalid read"),)),
    "loaded_code": foreign_kernel,
    "stray_activity": lambda: trials_of(timing=make.make_timing(stray=3)),
    "physical_floor": lambda: trials_of(timing=make.make_timing(span_ns=2_000)),
    "precision_gate": imprecise,
    "families": wrong_family,
    "timed_checks": lambda: trials_of(checks=(make.make_call(CORRECTNESS_CALL),)),
}
"""Evidence for which there is no speedup, by the one defence that sees to it."""


def judged(evidence: Evidence, *off: str, build: Any = None) -> Verdict:
    return judge_without(make.suite_case(), build or make.make_build(), evidence, off)


@pytest.mark.parametrize("name", sorted(WITHHELD))
def test_one_defence_withholds_and_without_it_there_is_a_speedup(name: str) -> None:
    evidence = WITHHELD[name]()
    assert judged(evidence).speedup is None
    others = [other for other in DEFENCES if other != name]
    assert judged(evidence, *others).speedup is None, "some other switch does this one's work"
    found = judged(evidence, name)
    assert found.correct
    assert found.speedup is not None


def test_without_the_clock_hidden_work_is_free() -> None:
    assert judged(hidden_host_work()).latency_source == "oracle_clock"
    assert judged(hidden_host_work(), "clock_check").latency_source == "cupti"
    free, charged = judged(hidden_host_work(), "clock_check").speedup, judged(hidden_host_work()).speedup
    assert free is not None
    assert charged is not None
    assert free > 5 * charged


def test_decoys_pass_without_counts() -> None:
    idle = make.make_evidence(instructions=make.make_instructions(make.make_counts("FFMA")))
    assert judged(idle).target is Target.NOT_EXECUTED
    assert judged(idle, "instruction_counts").target is Target.EXECUTED
    token = make.make_evidence(instructions=make.make_instructions(make.make_counts(threads=128)))
    share = judged(token).useful_share
    assert share is not None
    assert share < 0.01
    assert judged(token, "useful_share").useful_share is None


def test_a_difference_under_the_profiler_passes_without_agreement() -> None:
    shown = make.make_evidence(instructions=make.make_instructions(outputs_match=False))
    assert judged(shown).target is Target.UNKNOWN
    assert judged(shown, "tool_agreement").target is Target.EXECUTED


def test_what_was_measured_without_a_defence_is_refused_unless_asked_for() -> None:
    weak = make.make_evidence(defences_off=("guard_bands", "families"))
    assert judged(weak).rule == "evidence.defences_off"
    assert judged(weak, "guard_bands").rule == "evidence.defences_off"
    assert judged(weak, "guard_bands", "families").correct


def test_with_all_defences_it_is_the_judge_itself() -> None:
    evidence = make.make_evidence()
    assert judged(evidence) == judge(make.suite_case(), make.make_build(), evidence)
    assert judged(evidence, *DEFENCES).correct
    assert isinstance(evidence.device, DeviceIdentity)
