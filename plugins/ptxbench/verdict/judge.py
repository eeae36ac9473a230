"""The judge: a pure function of case, build and evidence. The same inputs give the same verdict on any machine."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ptxbench.cases.case import Case
from ptxbench.errors import InputError
from ptxbench.records import (
    Build,
    Evidence,
    InfrastructureFault,
    Outcome,
    OutputComparison,
    Safe,
    Target,
    Verdict,
)
from ptxbench.verdict.outcome import Decision, decide_build, decide_run, find_mismatch
from ptxbench.verdict.precision import family_flags, precision_flags
from ptxbench.verdict.quoting import quote
from ptxbench.verdict.rules import Rule, TargetRule
from ptxbench.verdict.safety import judge_safety
from ptxbench.verdict.speed import Speed, judge_speed
from ptxbench.verdict.target import judge_target
from ptxbench.verdict.useful_work import useful_share


def judge(case: Case, build: Build, evidence: Evidence | None) -> Verdict:
    """Judge one built candidate. Without evidence, or with evidence of something else, the outcome is unknown.

    Raises InputError when the build is for another architecture than the case, since then no rule has a meaning.
    """
    if build.arch != case.arch.name:
        raise InputError(
            f"{case.name}: expected a build for {case.arch.name}, found one for {build.arch}; "
            f"build the candidate for {case.arch.name} or judge it with a case of {build.arch}"
        )
    decision, used = _decide(case, build, evidence)
    target = judge_target(case, build, used, decision.outcome)
    safety = judge_safety(used)
    correct = decision.outcome is Outcome.CORRECT
    beside = (*precision_flags(used), *family_flags(used)) if used is not None and correct else ()
    speed = judge_speed(case, used, beside) if used is not None and correct else Speed()
    flags = {*speed.flags, *target.flags}
    counted = target.target is not Target.UNKNOWN and used is not None and correct and target.present
    return Verdict(
        outcome=decision.outcome,
        rule=decision.rule.value,
        message=decision.message,
        target=target.target,
        target_rule=target.rule.value,
        target_message=target.message,
        target_present=target.present,
        families=target.families,
        safe=safety.safe,
        safe_message=safety.message,
        safety=safety.checks,
        latency_ms=speed.latency_ms,
        latency_source=speed.source,
        latency_interval_ms=speed.latency_interval_ms,
        baseline_ms=speed.baseline_ms,
        baseline_interval_ms=speed.baseline_interval_ms,
        speedup=speed.speedup,
        relative_rms=_largest(output.relative_rms for output in _outputs(used)),
        mismatch_share=_largest(output.mismatched / output.elements for output in _outputs(used) if output.elements),
        roofline_share=speed.roofline_share,
        useful_share=useful_share(case, target.counts) if counted else None,
        flags=tuple(sorted(flag.value for flag in flags)),
    )


def _decide(case: Case, build: Build, evidence: Evidence | None) -> tuple[Decision, Evidence | None]:
    """Return the decision and the evidence that may be read for the rest of the verdict."""
    unbuilt = decide_build(build)
    if unbuilt is not None:
        return unbuilt, None
    if evidence is None:
        message = "no device ran this candidate and no stored evidence has its hashes"
        return Decision(Outcome.UNKNOWN, Rule.EVIDENCE_NONE, message), None
    mismatch = find_mismatch(case, build, evidence)
    if mismatch is not None:
        message = f"the evidence is of something else: {mismatch}: measure this candidate"
        return Decision(Outcome.UNKNOWN, Rule.EVIDENCE_HASH_MISMATCH, message), None
    if evidence.defences_off:
        message = f"measured for a self-test without {', '.join(map(quote, evidence.defences_off))}: measure again"
        return Decision(Outcome.UNKNOWN, Rule.EVIDENCE_DEFENCES_OFF, message), None
    return decide_run(case, build, evidence), evidence


def _outputs(evidence: Evidence | None) -> Iterator[OutputComparison]:
    for trial in evidence.run.trials if evidence is not None else ():
        for call in trial.checks:
            yield from call.outputs


def _largest(values: Iterator[float]) -> float | None:
    # An error that overflowed has no size to report; the mismatch share still speaks of it.
    return max((value for value in values if math.isfinite(value)), default=None)


def judge_extraction_error(message: str) -> Verdict:
    """Return the verdict of a reply that holds no candidate; ``message`` says what was looked for and found."""
    return Verdict(
        outcome=Outcome.EXTRACTION_ERROR,
        rule=Rule.EXTRACTION.value,
        message=quote(message),
        target=Target.NOT_EXECUTED,
        target_rule=TargetRule.NO_OBJECT.value,
        target_message="nothing was built, so nothing executed",
        safe=Safe.NOT_RUN,
        safe_message="nothing ran",
    )


def judge_infrastructure(fault: InfrastructureFault) -> Verdict:
    """Return the verdict of a turn that a fault of the machinery kept from being judged."""
    return Verdict(
        outcome=Outcome.INFRASTRUCTURE_ERROR,
        rule=Rule.INFRASTRUCTURE.value,
        message=f"{fault.kind}: {quote(fault.message)}",
        target=Target.UNKNOWN,
        target_rule=TargetRule.INFRASTRUCTURE.value,
        target_message="the machinery failed before this was known",
        safe=Safe.UNKNOWN,
        safe_message="the machinery failed before this was known",
    )
