"""What a model is told of memory safety where the outcome does not say it: growing memory, open checks, what to do."""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.agent.feedback.parts import Turn
from ptxbench.agent.feedback.wording import lines_with, listed, numbers, safe
from ptxbench.records import SAFETY_TOOLS, Safe, SafetyEvidence
from ptxbench.verdict.safety import GUARDS

_ALLOCATING = ("cudaMalloc", "cuMemAlloc", "cuMemCreate", "malloc(", "cudaHostAlloc", "new ")
_ADVICE = {
    "initcheck": "Memory must be written before it is read: fresh device memory holds anything, also the part of a "
    "scratch buffer or tile that no thread fills.",
    "synccheck": "Every thread that a barrier counts must reach it: look for returns, breaks and conditions before it, "
    "for the thread count of a named barrier, and for the arrival count of an mbarrier.",
    "racecheck": "Between a write to shared memory and another thread's access to it there must be a barrier, an "
    "mbarrier wait or a wait for the copies; where TMA or wgmma is one side, fence.proxy.async too.",
}
_GROWTH = (
    "Allocate scratch memory once and keep it for later calls, or free it on the stream (cudaFreeAsync) behind the "
    "last kernel that uses it."
)


def safety_facts(turn: Turn) -> Iterator[str]:
    """What the checks say beside their findings: all four clean, or why one does not say."""
    if all(tool in turn.verdict.safety for tool in SAFETY_TOOLS):
        checks = {tool: turn.verdict.safety[tool] for tool in SAFETY_TOOLS}
        if all(check.safe is Safe.YES for check in checks.values()):
            yield f"No findings by {listed(checks)}."
        for check in checks.values():
            if check.safe is Safe.UNKNOWN and "under it the outputs were wrong" in check.message:
                yield f"{safe(check.message)}."
    guards = turn.verdict.safety.get(GUARDS)
    if guards is not None and guards.safe is Safe.NO:
        yield f"{safe(guards.message)}."
    for safety in turn.evidence.safety:
        if _grows(turn, safety):
            yield _growth(turn, safety)


def safety_advice(turn: Turn) -> Iterator[str]:
    """What to look at, for each tool with findings whose findings are not the outcome."""
    for safety in turn.evidence.safety:
        if safety.findings and safety.tool in _ADVICE:
            yield _ADVICE[safety.tool]
        if _grows(turn, safety):
            yield _GROWTH


def _grows(turn: Turn, safety: SafetyEvidence) -> bool:
    check = turn.verdict.safety.get(safety.tool)
    return check is not None and check.safe is Safe.NO and not safety.findings and len(safety.kept) > 2


def _growth(turn: Turn, safety: SafetyEvidence) -> str:
    lines = [f"{safe(turn.verdict.safety[safety.tool].message)}."]
    if found := lines_with(turn.source, *_ALLOCATING):
        lines.append(f"Your source allocates at {numbers(found)}.")
    return "\n".join(lines)
