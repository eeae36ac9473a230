"""The outcome of a turn: the first rule that applies, in the order of PROTOCOL 4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from ptxbench.cases.case import Case
from ptxbench.cases.defaults import EXACT, tolerance_of
from ptxbench.records import (
    CORRECTNESS_CALL,
    Build,
    BuildStatus,
    CheckedCall,
    Evidence,
    Outcome,
    OutputComparison,
    RunStatus,
    Trial,
)
from ptxbench.verdict.kernel_names import is_kernel_of
from ptxbench.verdict.loaded import find_foreign
from ptxbench.verdict.quoting import first_error, quote
from ptxbench.verdict.rules import Rule
from ptxbench.verdict.safety import broken_guard, describe_findings, has_findings, memcheck_of


class Decision(NamedTuple):
    """An outcome with the rule that gave it."""

    outcome: Outcome
    rule: Rule
    message: str


class _Check(NamedTuple):
    """One checked call and the trial it belongs to."""

    number: int
    trial: Trial
    call: CheckedCall

    @property
    def place(self) -> str:
        if self.call.iteration == CORRECTNESS_CALL:
            call = "correctness call"
        else:
            call = f"timed-loop call {self.call.iteration}"
        return f"trial {self.number} (family {quote(self.trial.family)}), {call}"


def decide_build(build: Build) -> Decision | None:
    """Return the decision of a build that cannot run, None for one that can."""
    if build.status is BuildStatus.SCREENED:
        return _screened(build)
    if build.status is BuildStatus.COMPILE_ERROR:
        rule = Rule.COMPILE_TIMEOUT if build.timed_out else Rule.COMPILE_ERROR
        what = "the compiler ran into its time limit" if build.timed_out else "the compiler reported"
        return Decision(Outcome.COMPILE_ERROR, rule, f"{what}: {first_error(build.log)}")
    return None


def _screened(build: Build) -> Decision:
    if not build.findings:
        return Decision(Outcome.SCREENED, Rule.SCREEN_OTHER, "the screen rejected the source without a finding")
    first, more = build.findings[0], len(build.findings) - 1
    place = f" (line {first.line})" if first.line is not None else ""
    others = f", and {more} more" if more else ""
    return Decision(Outcome.SCREENED, _screen_rule(first.rule), f"{quote(first.message)}{place}{others}")


def _screen_rule(finding: str) -> Rule:
    """Return the rule of a screen finding: the toolchain's name for it, spelled as a rule."""
    name = f"screen.{finding.replace('-', '_')}"
    return Rule(name) if name in set(Rule) else Rule.SCREEN_OTHER


def find_mismatch(case: Case, build: Build, evidence: Evidence) -> str | None:
    """Return how the evidence is not of this case, build and architecture, or None when it is.

    Device code and source must both be the same. The hash of the shared object may differ, since its host code depends
    on the host compiler.
    """
    compared: list[tuple[str, object, object]] = [
        ("definition", evidence.definition, case.definition.name),
        ("workload", evidence.workload_uuid, case.workload.uuid),
        ("architecture", evidence.arch, case.arch.name),
        ("compute capability", evidence.device.compute_capability, case.arch.compute_capability),
        ("candidate_sha256", evidence.candidate_sha256, build.candidate_sha256),
        ("cubin_sha256", evidence.cubin_sha256, build.cubin_sha256),
    ]
    different = [f"{name} {found} instead of {expected}" for name, found, expected in compared if found != expected]
    return "; ".join(different) or None


def decide_run(case: Case, build: Build, evidence: Evidence) -> Decision:
    """Return the decision of evidence that is known to belong to this build."""
    for decide in (
        _status,
        _foreign_kernel,
        _foreign_code,
        _memory,
        _inputs,
        _shapes,
        _tolerance,
        _numbers,
        _completeness,
    ):
        decision = decide(case, build, evidence)
        if decision is not None:
            return decision
    calls = sum(1 for _ in _checks(evidence))
    exact = " (integers equal)" if any(tolerance_of(case, name) is EXACT for name in case.output_shapes()) else ""
    return Decision(
        Outcome.CORRECT,
        Rule.PASSED,
        f"every element within atol {case.tolerance.atol:g} + rtol {case.tolerance.rtol:g}{exact} in "
        f"{calls} checked calls of {len(evidence.run.trials)} trials{_describe_near_misses(evidence)}",
    )


def _describe_near_misses(evidence: Evidence) -> str:
    missed = [trial.near_miss for trial in evidence.run.trials if trial.near_miss is not None]
    if not missed:
        return ""
    elements = sum(output.mismatched for call in missed for output in call.outputs)
    return f"; correctness calls repeated on another draw: {len(missed)}, for {elements} elements beyond it"


def _status(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    run = evidence.run
    if run.status is RunStatus.COMPLETED:
        return None
    outcome, rule = {
        RunStatus.TIMEOUT: (Outcome.TIMEOUT, Rule.RUN_TIMEOUT),
        RunStatus.LOAD_ERROR: (Outcome.RUNTIME_ERROR, Rule.RUN_LOAD),
        RunStatus.RUNTIME_ERROR: (Outcome.RUNTIME_ERROR, Rule.RUN_ERROR),
        RunStatus.CRASHED: (Outcome.RUNTIME_ERROR, Rule.RUN_CRASH),
    }[run.status]
    code = "" if run.error_code is None else f" [code {run.error_code}]"
    stage = f" in stage {quote(run.stage)}" if run.stage else ""
    message = f"{run.status.value}{stage}{code}: {quote(run.message) or '(no message)'}"
    memcheck = memcheck_of(evidence)
    if memcheck is not None and has_findings(memcheck):
        message += f"; {describe_findings(memcheck)}"
    return Decision(outcome, rule, message)


def _foreign_kernel(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    own = build.kernels
    if build.inspection != "ok" and not own:
        return None
    foreign = sorted({launch.name for launch in evidence.run.launches if not is_kernel_of(launch.name, own)})
    if not foreign:
        return None
    names = ", ".join(quote(name) for name in foreign[:3])
    message = f"launched {len(foreign)} kernels that are not in the built object: {names}"
    return Decision(Outcome.SCREENED, Rule.SCREEN_FOREIGN_KERNEL, message)


def _foreign_code(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    foreign = find_foreign(evidence)
    return None if foreign is None else Decision(Outcome.SCREENED, foreign.rule, foreign.message)


def _memory(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    guard = broken_guard(evidence)
    if guard is not None:
        return Decision(Outcome.MEMORY_ERROR, Rule.MEMORY_GUARD, guard)
    memcheck = memcheck_of(evidence)
    if memcheck is not None and has_findings(memcheck):
        return Decision(Outcome.MEMORY_ERROR, Rule.MEMORY_MEMCHECK, describe_findings(memcheck))
    return None


def _checks(evidence: Evidence) -> Iterator[_Check]:
    """Correctness calls of all trials, then the checked timed iterations of all trials.

    A call that another draw replaced is no check, as long as it failed by as little as that takes.
    """
    checks = []
    for number, trial in enumerate(evidence.run.trials):
        replaced = trial.near_miss
        calls = trial.checks if replaced is None or replaced.is_near_miss else (replaced, *trial.checks)
        checks += [_Check(number, trial, call) for call in calls]
    yield from (check for check in checks if check.call.iteration == CORRECTNESS_CALL)
    yield from (check for check in checks if check.call.iteration != CORRECTNESS_CALL)


def _compared(evidence: Evidence) -> Iterator[tuple[_Check, OutputComparison]]:
    for check in _checks(evidence):
        for output in check.call.outputs:
            yield check, output


def _inputs(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    for check in _checks(evidence):
        if not check.call.inputs_intact:
            return Decision(
                Outcome.NUMERICAL_ERROR,
                Rule.INPUTS_MODIFIED,
                f"{check.place}: an input was not what it had been before the call",
            )
    return None


def _shapes(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    shapes = case.output_shapes()
    for check, output in _compared(evidence):
        if output.name not in shapes:
            continue  # completeness speaks of it: an unknown output is the evidence's fault
        what = f"{check.place}: output {output.name}: expected"
        if output.shape != shapes[output.name]:
            message = f"{what} shape {shapes[output.name]}, found {output.shape}"
            return Decision(Outcome.WRONG_SHAPE_OR_DTYPE, Rule.SHAPE, message)
        dtype = case.definition.outputs[output.name].dtype.value
        if output.dtype != dtype:
            message = f"{what} dtype {dtype}, found {quote(output.dtype)}"
            return Decision(Outcome.WRONG_SHAPE_OR_DTYPE, Rule.DTYPE, message)
    return None


def _tolerance(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    for check, output in _compared(evidence):
        tolerance = tolerance_of(case, output.name)
        expected = (tolerance.atol, tolerance.rtol)
        if (output.atol, output.rtol) != expected:
            message = (
                f"{check.place}: output {output.name} was compared with atol {output.atol:g}, rtol {output.rtol:g}; "
                f"the case asks for {expected[0]:g}, {expected[1]:g}: measure again"
            )
            return Decision(Outcome.UNKNOWN, Rule.EVIDENCE_TOLERANCE, message)
    return None


def _numbers(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    for check, output in _compared(evidence):
        if check.call.disagrees(output):
            first = check.call.iteration == CORRECTNESS_CALL
            where = f", first at {output.first_mismatches[0]}" if output.first_mismatches else ""
            message = (
                f"{check.place}: output {output.name}: {output.mismatched} of {output.elements} elements beyond "
                f"atol {output.atol:g} + rtol {output.rtol:g}, {output.nan} of them NaN, "
                f"largest error {output.max_abs_error:.3g}{where}"
            )
            return Decision(Outcome.NUMERICAL_ERROR, Rule.MISMATCH if first else Rule.TIMED_ITERATION, message)
    return None


def _completeness(case: Case, build: Build, evidence: Evidence) -> Decision | None:
    trials = evidence.run.trials
    missing = None
    if len(trials) < case.trials:
        missing = f"{len(trials)} trials instead of {case.trials}"
    for number, trial in enumerate(trials):
        if not any(call.iteration == CORRECTNESS_CALL for call in trial.checks):
            missing = missing or f"trial {number} has no checked correctness call"
    expected = set(case.output_shapes())
    for check in _checks(evidence):
        names = [output.name for output in check.call.outputs]
        if set(names) != expected or len(names) != len(expected):
            missing = missing or f"{check.place} compared {sorted(names)} instead of {sorted(expected)}"
        for output in check.call.outputs:
            if output.elements != math.prod(output.shape):
                missing = missing or f"{check.place} compared {output.elements} elements of output {output.name}"
    if missing is None:
        return None
    return Decision(Outcome.UNKNOWN, Rule.EVIDENCE_INCOMPLETE, f"the evidence is incomplete: {missing}: measure again")
