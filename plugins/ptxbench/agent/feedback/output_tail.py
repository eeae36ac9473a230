"""What the candidate itself printed, quoted."""

from __future__ import annotations

from ptxbench.agent.feedback.wording import safe
from ptxbench.profiler.worker import OUTPUT_TAIL_CHARS
from ptxbench.records import RunEvidence

MAX_LINES = 6
LINE_CHARS = 160
_BACKTRACE = ("!!!!!!!", 'File "<unknown>"')
"""Lines of TVM-FFI's handler of crashes, about the process that calls."""


def printed(run: RunEvidence) -> tuple[str, ...]:
    """The last lines that are the candidate's; empty where it printed nothing."""
    whole = run.output_tail.splitlines()
    if len(run.output_tail) >= OUTPUT_TAIL_CHARS:
        whole = whole[1:]  # begins anywhere: half a path would not be known as one
    lines = [line for line in whole if line.strip() and not line.strip().startswith(_BACKTRACE)]
    if not lines:
        return ()
    return ("Your code printed last:\n" + "\n".join(f"  {safe(line, LINE_CHARS)}" for line in lines[-MAX_LINES:]),)
