"""The judge without some of its defences: what a verdict would be if nobody had thought of them.

Only the self-test judges so. What a defence rests on is taken out of the evidence, and the judge of every run, which
knows nothing of this, judges the rest.
"""

from __future__ import annotations

from collections.abc import Collection

from ptxbench.cases import Case
from ptxbench.profiler.protocol import SafetyTool
from ptxbench.records import (
    CORRECTNESS_CALL,
    BaselineMeasurement,
    Build,
    Evidence,
    InstructionEvidence,
    RunEvidence,
    SafetyEvidence,
    Target,
    ToolStatus,
    Trial,
    Verdict,
)
from ptxbench.verdict import judge
from ptxbench.verdict.kernel_names import is_kernel_of

OTHER_SANITIZERS: tuple[SafetyTool, ...] = ("synccheck", "racecheck", "initcheck")
"""The quick one first: initcheck takes minutes."""


def judge_without(case: Case, build: Build, evidence: Evidence | None, off: Collection[str]) -> Verdict:
    """The verdict without the defences ``off``. What was measured without others is judged as if it were complete."""
    seen = None if evidence is None else _seen(build, evidence, off)
    verdict = judge(case, build, seen)
    if "instruction_counts" in off and verdict.correct and verdict.target_present:
        verdict = verdict.model_copy(update={"target": Target.EXECUTED, "useful_share": None})
    if "useful_share" in off:
        verdict = verdict.model_copy(update={"useful_share": None})
    return verdict


def _seen(build: Build, evidence: Evidence, off: Collection[str]) -> Evidence:
    """The evidence as a judge without these defences sees it."""
    tools = {"memcheck"} if "memcheck" in off else set()
    tools |= set(OTHER_SANITIZERS) if "sanitizers" in off else set()
    device = evidence.device
    if "physical_floor" in off:
        # A ceiling that is 0 bounds nothing.
        device = device.model_copy(update={"sm_count": 0, "memory_bandwidth_bytes_per_s": 0})
    changes = {
        # What was measured without another defence than those that are asked for stays refused.
        "defences_off": tuple(name for name in evidence.defences_off if name not in off),
        "device": device,
        "run": _run(build, evidence.run, off),
        "instructions": _instructions(build, evidence.instructions, off),
        "safety": tuple(_silent(found) if found.tool in tools else found for found in evidence.safety),
    }
    return evidence.model_copy(update=changes)


def _silent(found: SafetyEvidence) -> SafetyEvidence:
    """A tool that ran and found nothing."""
    return SafetyEvidence(tool=found.tool, status=ToolStatus.OK, version=found.version, axes=found.axes)


def _run(build: Build, run: RunEvidence, off: Collection[str]) -> RunEvidence:
    changes: dict[str, object] = {"trials": tuple(_trial(trial, run.baseline, off) for trial in run.trials)}
    own = tuple(launch for launch in run.launches if is_kernel_of(launch.name, build.kernels))
    if "loaded_code" in off:
        changes |= {"launches": own, "loaded": None}
    if "tool_agreement" in off and ("loaded_code" in off or len(own) == len(run.launches)):
        changes["launches"] = ()  # with nothing to compare with, nothing differs
    if "families" in off:
        changes["families"] = ()
    if "precision_gate" in off and run.baseline is not None:
        changes["baseline"] = run.baseline.model_copy(update={"relative_rms": {}})
    return run.model_copy(update=changes)


def _trial(trial: Trial, baseline: BaselineMeasurement | None, off: Collection[str]) -> Trial:
    timing = trial.timing
    if timing is not None and "stray_activity" in off:
        timing = timing.model_copy(update={"stray": 0})
    if timing is not None and "clock_check" in off:
        overhead = baseline.overhead_ns if baseline is not None else 0
        timing = timing.model_copy(update={"wall_ns": tuple(span + overhead for span in timing.span_ns)})
    checks = trial.checks
    if "timed_checks" in off and checks and all(call.iteration == CORRECTNESS_CALL for call in checks):
        # The judge asks that the timed loop was looked into: the correctness call stands in for a look.
        checks = (*checks, checks[0].model_copy(update={"iteration": 0}))
    return trial.model_copy(update={"timing": timing, "checks": checks})


def _instructions(build: Build, found: InstructionEvidence, off: Collection[str]) -> InstructionEvidence:
    changes: dict[str, object] = {}
    if "tool_agreement" in off:
        changes["outputs_match"] = None
    if "loaded_code" in off:
        changes["kernels"] = tuple(name for name in found.kernels if is_kernel_of(name, build.kernels))
        changes["counts"] = tuple(count for count in found.counts if is_kernel_of(count.kernel, build.kernels))
    return found.model_copy(update=changes)
