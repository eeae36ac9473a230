"""Which sanitizers look at a candidate, and at which lines of its source their findings are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from ptxbench.records import SAFETY_TOOLS, Evidence, RunStatus, SafetyEvidence, SafetyFinding, SafetyTool, ToolStatus
from ptxbench.verdict.kernel_names import is_kernel_of
from ptxbench.verdict.safety import has_findings

if TYPE_CHECKING:
    from ptxbench.toolchain.source_lines import SourceLines

SafetyLevel = Literal["off", "memcheck", "full"]
"""``--safety``: no sanitizer, memcheck (the protocol's), or all four tools."""
DEFAULT_SAFETY: SafetyLevel = "memcheck"
"""PROTOCOL 4.3."""


def tools_before_numbers(level: SafetyLevel, evidence: Evidence) -> tuple[SafetyTool, ...]:
    """The tools whose word decides whether numbers count.

    None where the candidate ran out of time or never loaded: a sanitizer slows a kernel down by orders of magnitude,
    and what did not load has nothing to tell it.
    """
    if level == "off" or evidence.run.status in (RunStatus.TIMEOUT, RunStatus.LOAD_ERROR):
        return ()
    return ("memcheck",)


def tools_beside_numbers(level: SafetyLevel, evidence: Evidence) -> tuple[SafetyTool, ...]:
    """The tools that decide ``safe`` and no outcome, behind memcheck.

    None where a call failed or memcheck has findings: they would meet the same fault first, and say nothing new. A
    wrong result is looked at, since a race or an uninitialized read may be why.
    """
    memcheck = [safety for safety in evidence.safety if safety.tool == "memcheck"]
    ended = evidence.run.status is RunStatus.COMPLETED
    if level != "full" or not ended or any(map(has_findings, memcheck)):
        return ()
    return tuple(tool for tool in SAFETY_TOOLS if tool != "memcheck")


def not_run(tool: SafetyTool, why: str) -> SafetyEvidence:
    """A tool that was meant to run and had no reason to."""
    return SafetyEvidence(tool=tool, status=ToolStatus.NOT_RUN, message=why)


def with_lines(evidence: Evidence, kernels: tuple[str, ...], find: Callable[[], SourceLines | None]) -> Evidence:
    """The evidence with the source lines of its findings, where they are known.

    ``kernels`` are the mangled names of the object; ``find`` makes the table of lines, asked where there is a place.
    """
    places = [finding for safety in evidence.safety for finding in safety.findings if finding.offset is not None]
    table = find() if any(not finding.lines for finding in places) else None
    if table is None:
        return evidence

    def located(finding: SafetyFinding) -> SafetyFinding:
        if finding.offset is None or finding.lines:
            return finding
        names = [name for name in kernels if is_kernel_of(finding.kernel, (name,))]
        # Instances of one template are not told apart by a demangled name: a line is given where they agree.
        found = {table.at(name, finding.offset) for name in names}
        return finding.model_copy(update={"lines": found.pop()}) if len(found) == 1 else finding

    safety = tuple(each.model_copy(update={"findings": tuple(map(located, each.findings))}) for each in evidence.safety)
    return evidence.model_copy(update={"safety": safety})
