"""What compute-sanitizer said of a candidate. Raw: whether that is safe is the judge's to say."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from ptxbench.records.base import Amount, Count, Record
from ptxbench.records.tool_status import ToolStatus

SafetyTool = Literal["memcheck", "initcheck", "synccheck", "racecheck"]
SAFETY_TOOLS: tuple[SafetyTool, ...] = get_args(SafetyTool)
"""In the order in which they run. memcheck alone runs on the full workload and decides an outcome."""
LEAK = "leak"
"""``SafetyFinding.kind`` of device memory that was not freed."""


class SafetyFinding(Record):
    """One finding of a sanitizer, in the tool's own words."""

    kind: str
    """The tool's heading; ``LEAK`` for memory that was not freed."""
    message: str
    kernel: str = ""
    location: str = ""
    """Place as the tool gives it, of objects with line information."""
    offset: Count | None = None
    """Of the instruction in the kernel's code, bytes. None where the tool gave none, and in evidence older than this
    field."""
    lines: tuple[int, ...] = ()
    """Lines of the candidate's source, the innermost inlined function first. Empty where they are not known, and in
    evidence older than this field."""


class KeptMemory(Record):
    """Device memory that the candidate had not freed after some calls in one process."""

    calls: Count
    allocations: Count
    """By the leak report, when the process ended: ``cudaMalloc`` and relatives, and ``malloc`` in kernels."""
    allocated_bytes: Count
    pool_bytes: Count = 0
    """In use in the default memory pool behind the last call: ``cudaMallocAsync``. It may be among the others too."""

    @property
    def nothing(self) -> bool:
        """Whether all was freed."""
        return not (self.allocations or self.allocated_bytes or self.pool_bytes)

    def exceeds(self, other: KeptMemory) -> bool:
        """Whether more is kept than in another run, by any of the measures."""
        return (
            self.allocations > other.allocations
            or self.allocated_bytes > other.allocated_bytes
            or self.pool_bytes > other.pool_bytes
        )


class SafetyEvidence(Record):
    """One compute-sanitizer tool over one call."""

    tool: SafetyTool
    status: ToolStatus
    message: str = ""
    version: str = ""
    findings: tuple[SafetyFinding, ...] = ()
    """Without leaks."""
    finding_count: int = 0
    axes: dict[str, int] = Field(default_factory=dict)
    """Axis values of the workload it ran on."""
    outputs_match: bool | None = None
    """Whether the outputs under the tool passed the comparison of a timed call. None where the call did not end, and in
    evidence older than this field."""
    leaks: tuple[SafetyFinding, ...] = ()
    """memcheck's leak report behind the call: what is kept between calls, at most some of it."""
    kept: tuple[KeptMemory, ...] = ()
    """After one call and, where something was kept, after more of them on the shrunk workload; in the order of
    ``calls``. Empty where it was not measured, and in evidence older than this field."""
    kept_unknown: str = ""
    """Why it is not known whether what is kept grows; empty where it is, or nothing is kept."""
    wall_ms: Amount | None = None
    """From the tool's start to its end; no rule reads it."""
    checked_before: str = ""
    """UTC, ISO 8601, where this is the result of an earlier check of the same object; empty for one of its own."""
