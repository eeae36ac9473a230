"""Safety beyond outputs, three-valued for each check and for all together, with the tool's own words.

Pure. Nothing that a check left open is taken for clean: a tool that failed, one under which the candidate computed
something else than without it, and a fault that no tool explains are all unknown.
"""

from __future__ import annotations

from typing import NamedTuple

from ptxbench.records import SAFETY_TOOLS, Evidence, RunStatus, Safe, SafetyEvidence, ToolSafety, ToolStatus
from ptxbench.verdict.quoting import quote

GUARDS = "guards"
"""Name of the guard bands among the checks."""
MEMCHECK = "memcheck"
RACE_WARNING = "Warning: Race reported"
"""racecheck's lower severity: hazards that may be intended, such as warp-level code that counts on threads which go on
together (Compute Sanitizer User Manual, "Racecheck Tool"). Since Volta nothing promises that."""
MEMORY_FAULTS = {
    700: "cudaErrorIllegalAddress",
    714: "cudaErrorHardwareStackError",
    715: "cudaErrorIllegalInstruction",
    716: "cudaErrorMisalignedAddress",
    717: "cudaErrorInvalidAddressSpace",
    718: "cudaErrorInvalidPc",
    719: "cudaErrorLaunchFailure",
}
"""CUDA errors that only undefined behaviour on the device brings about (driver_types.h)."""


class SafetyDecision(NamedTuple):
    """Whether undefined behaviour was found, what says so, and the same for each check."""

    safe: Safe
    message: str
    checks: dict[str, ToolSafety] = {}  # noqa: RUF012 - never changed


def has_findings(safety: SafetyEvidence) -> bool:
    """Whether a sanitizer found something. A tool stopped at its first findings has found them all the same."""
    return bool(safety.findings) or safety.finding_count > 0


def describe_findings(safety: SafetyEvidence) -> str:
    """Return the tool's first finding, where it is and how many there were."""
    count = max(safety.finding_count, len(safety.findings))
    if not safety.findings:
        return f"{safety.tool}: {count} findings"
    first = safety.findings[0]
    line = f"line {first.lines[0]}" if first.lines else quote(first.location)
    places = (("in", quote(first.kernel)), ("at", line))
    place = "".join(f" {label} {text}" for label, text in places if text)
    said = quote(first.kind) if first.kind and first.kind not in first.message else ""
    words = ": ".join(filter(None, (said, quote(first.message))))
    return f"{safety.tool}: {words}{place} ({count} {'finding' if count == 1 else 'findings'})"


def broken_guard(evidence: Evidence) -> str | None:
    """Return where a guard band around a buffer was overwritten in a trial, or None."""
    for number, trial in enumerate(evidence.run.trials):
        if not trial.guards_intact or not all(check.guards_intact for check in trial.checks):
            return f"a guard band around a buffer was overwritten in trial {number} (family {quote(trial.family)})"
    return None


def memcheck_of(evidence: Evidence) -> SafetyEvidence | None:
    """Return the memcheck run with findings, else any memcheck run, else None."""
    return _run_of(evidence, MEMCHECK)


def judge_safety(evidence: Evidence | None) -> SafetyDecision:
    """Return NO for any finding, overwritten guard or growing memory, YES only if memcheck and every other tool that
    was tried were clean; the message says which those are."""
    if evidence is None:
        return SafetyDecision(Safe.NOT_RUN, "nothing ran")
    checks = {GUARDS: _guards(evidence)} | {tool: _judge_tool(evidence, tool) for tool in SAFETY_TOOLS}
    said = {safe: [name for name, check in checks.items() if check.safe is safe] for safe in Safe}
    for safe in (Safe.NO, Safe.UNKNOWN):
        if said[safe]:
            return SafetyDecision(safe, "; ".join(checks[name].message for name in said[safe]), checks)
    if checks[MEMCHECK].safe is Safe.NOT_RUN:
        return SafetyDecision(Safe.NOT_RUN, "memcheck did not run", checks)
    fault = _unexplained_fault(evidence)
    if fault:
        return SafetyDecision(Safe.UNKNOWN, fault, checks)
    clean = [tool for tool in SAFETY_TOOLS if checks[tool].safe is Safe.YES]
    absent = [tool for tool in SAFETY_TOOLS if checks[tool].safe is Safe.NOT_RUN]
    scope = f"; {', '.join(absent)} did not run" if absent else ""
    return SafetyDecision(Safe.YES, f"no findings by {', '.join(clean)}{scope}", checks)


def _run_of(evidence: Evidence, tool: str) -> SafetyEvidence | None:
    runs = [safety for safety in evidence.safety if safety.tool == tool]
    return next((run for run in runs if has_findings(run)), runs[0] if runs else None)


def _guards(evidence: Evidence) -> ToolSafety:
    broken = broken_guard(evidence)
    for family in evidence.run.families:
        if broken is None and family.call is not None and not family.call.guards_intact:
            broken = f"a guard band around a buffer was overwritten on inputs of family {quote(family.family)}"
    if broken is not None:
        return ToolSafety(safe=Safe.NO, message=broken)
    calls = sum(len(trial.checks) for trial in evidence.run.trials)
    if not calls:
        return ToolSafety(safe=Safe.NOT_RUN, message="no call was checked")
    return ToolSafety(safe=Safe.YES, message=f"intact behind {calls} checked calls and each trial")


def _judge_tool(evidence: Evidence, tool: str) -> ToolSafety:
    run = _run_of(evidence, tool)
    if run is None or (run.status is ToolStatus.NOT_RUN and not has_findings(run)):
        return ToolSafety(safe=Safe.NOT_RUN, message=quote(run.message) if run is not None else "")
    if has_findings(run):
        return ToolSafety(safe=Safe.NO, message=describe_findings(run))
    if run.status is not ToolStatus.OK:
        return ToolSafety(safe=Safe.UNKNOWN, message=f"{tool} {run.status.value}: {quote(run.message)}")
    if run.outputs_match is False and _right_without_tools(evidence):
        message = f"{tool}: under it the outputs were wrong, without it right: it did not see what was measured"
        return ToolSafety(safe=Safe.UNKNOWN, message=message)
    if run.message.startswith(RACE_WARNING):
        message = (
            f"{tool}: hazards that it takes for meant, and that are races where they are not: {quote(run.message)}"
        )
        return ToolSafety(safe=Safe.UNKNOWN, message=message)
    return _kept(run) or ToolSafety(safe=Safe.YES, message=_clean(run))


def _kept(run: SafetyEvidence) -> ToolSafety | None:
    """Memory that grows with every call, or may: what is merely kept for the next call is honest."""
    if len(run.kept) > 2 and run.kept[-1].exceeds(run.kept[-2]):
        before, after = run.kept[-2], run.kept[-1]
        bytes_before, bytes_after = (max(kept.allocated_bytes, kept.pool_bytes) for kept in (before, after))
        message = (
            f"{run.tool}: device memory that is never freed grows with every call: {bytes_before:,} bytes in "
            f"{before.allocations} allocations after {before.calls} calls, {bytes_after:,} bytes in "
            f"{after.allocations} after {after.calls}"
        )
        return ToolSafety(safe=Safe.NO, message=message)
    unmeasured = bool(run.kept) and not run.kept[0].nothing and len(run.kept) <= 2
    if run.kept_unknown or unmeasured:
        why = quote(run.kept_unknown) or "it was measured once"
        message = f"{run.tool}: whether memory that is not freed grows with every call is unknown: {why}"
        return ToolSafety(safe=Safe.UNKNOWN, message=message)
    return None


def _clean(run: SafetyEvidence) -> str:
    axes = ", ".join(f"{name} {size}" for name, size in run.axes.items())
    remarks = [f"no findings at {axes}" if axes else "no findings"]
    if run.kept and not run.kept[0].nothing:
        last = run.kept[-1]
        remarks.append(f"keeps {max(last.allocated_bytes, last.pool_bytes):,} bytes between calls, which do not grow")
    if run.checked_before:
        remarks.append(f"checked before on {quote(run.checked_before)}")
    if run.message:
        remarks.append(f"the tool remarked: {quote(run.message)}")
    return "; ".join(remarks)


def _right_without_tools(evidence: Evidence) -> bool:
    """Whether every compared call of the evaluation itself was right."""
    calls = [call for trial in evidence.run.trials for call in trial.checks]
    right = all(call.inputs_intact and not any(map(call.disagrees, call.outputs)) for call in calls)
    return bool(calls) and right and evidence.run.status is RunStatus.COMPLETED


def _unexplained_fault(evidence: Evidence) -> str:
    """What undefined behaviour the candidate met without the tools, while they found none; empty for none."""
    run = evidence.run
    if run.status is RunStatus.CRASHED and (run.error_code or 0) < 0:
        return f"its process {quote(run.message)}, and no tool found why"
    if run.status is RunStatus.RUNTIME_ERROR and run.error_code in MEMORY_FAULTS:
        return f"a call ended with {MEMORY_FAULTS[run.error_code]}, and no tool found why"
    return ""
