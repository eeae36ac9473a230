"""A candidate that uses what a kernel of its own must not use."""

from __future__ import annotations

from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.wording import excerpt, listed, safe, short_name
from ptxbench.records import Finding
from ptxbench.verdict.kernel_names import is_kernel_of

SHOWN_FINDINGS = 6


def describe(turn: Turn) -> Parts:
    """Each finding with its line, or what was loaded that is not the candidate's own."""
    findings = turn.build.findings
    facts = [_finding(turn, finding) for finding in findings[:SHOWN_FINDINGS]]
    if len(findings) > SHOWN_FINDINGS:
        facts.append(f"{len(findings) - SHOWN_FINDINGS} more findings of this kind")
    if not findings and turn.record.evidence is not None:
        own = turn.build.kernels
        foreign = [
            short_name(launch.name) for launch in turn.evidence.run.launches if not is_kernel_of(launch.name, own)
        ]
        if foreign:
            facts.append(f"Kernels ran that your source does not define: {listed(foreign)}.")
        else:
            facts.append(f"While it ran, it {safe(turn.verdict.message)}.")
    return Parts(
        "Your kernel was rejected before its result was looked at: it uses something that is not allowed.",
        tuple(facts),
        (
            "Write the computation yourself in CUDA C++ and inline PTX. Only CUDA's own headers and TVM-FFI may be "
            "included; no vendor or DSL kernel library, no code loaded at run time, no other process.",
        ),
    )


def _finding(turn: Turn, finding: Finding) -> str:
    where = f" (line {finding.line})" if finding.line is not None else ""
    quoted = excerpt(turn.source, finding.line) if finding.line is not None else ""
    if not quoted and finding.excerpt:
        quoted = f"  {safe(finding.excerpt)}"
    return f"{finding.rule}: {safe(finding.message)}{where}" + (f"\n{quoted}" if quoted else "")
