"""Safety beyond outputs, three-valued, with the tool's own words."""

from __future__ import annotations

from typing import NamedTuple

from ptxbench.records import Evidence, Safe, SafetyEvidence, ToolStatus
from ptxbench.verdict.quoting import quote


class SafetyDecision(NamedTuple):
    """Whether undefined behaviour was found, and what says so."""

    safe: Safe
    message: str


def has_findings(safety: SafetyEvidence) -> bool:
    """Whether a sanitizer found something. A tool stopped at its first findings has found them all the same."""
    return bool(safety.findings) or safety.finding_count > 0


def describe_findings(safety: SafetyEvidence) -> str:
    """Return the tool's first finding and how many there were."""
    count = max(safety.finding_count, len(safety.findings))
    if not safety.findings:
        return f"{safety.tool}: {count} findings"
    first = safety.findings[0]
    place = "".join(f" {label} {quote(text)}" for label, text in (("in", first.kernel), ("at", first.location)) if text)
    return f"{safety.tool}: {quote(first.message)}{place} ({count} {'finding' if count == 1 else 'findings'})"


def broken_guard(evidence: Evidence) -> str | None:
    """Return where a guard band around a buffer was overwritten, or None."""
    for number, trial in enumerate(evidence.run.trials):
        if not trial.guards_intact or not all(check.guards_intact for check in trial.checks):
            return f"a guard band around a buffer was overwritten in trial {number} (family {quote(trial.family)})"
    return None


def memcheck_of(evidence: Evidence) -> SafetyEvidence | None:
    """Return the memcheck run with findings, else any memcheck run, else None."""
    runs = [safety for safety in evidence.safety if safety.tool == "memcheck"]
    return next((run for run in runs if has_findings(run)), runs[0] if runs else None)


def judge_safety(evidence: Evidence | None) -> SafetyDecision:
    """Return NO for any finding or overwritten guard, YES only if memcheck and every other tool tried were clean."""
    if evidence is None:
        return SafetyDecision(Safe.NOT_RUN, "nothing ran")
    found = [describe_findings(safety) for safety in evidence.safety if has_findings(safety)]
    guard = broken_guard(evidence)
    if guard is not None:
        found.insert(0, guard)
    if found:
        return SafetyDecision(Safe.NO, "; ".join(found))
    failed = [safety for safety in evidence.safety if safety.status not in (ToolStatus.OK, ToolStatus.NOT_RUN)]
    if failed:
        text = "; ".join(f"{safety.tool} {safety.status.value}: {quote(safety.message)}" for safety in failed)
        return SafetyDecision(Safe.UNKNOWN, text)
    memcheck = memcheck_of(evidence)
    if memcheck is None or memcheck.status is ToolStatus.NOT_RUN:
        return SafetyDecision(Safe.NOT_RUN, "memcheck did not run")
    clean = [safety.tool for safety in evidence.safety if safety.status is ToolStatus.OK]
    return SafetyDecision(Safe.YES, f"no findings by {', '.join(sorted(clean))}")
