"""What one call executes, by the instruction profiler's report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import prod

from ptxbench.records import Evidence, InstructionCount, KernelLaunch

EXIT = "EXIT"


def counts_of_call(evidence: Evidence) -> tuple[InstructionCount, ...]:
    """Return executions per (kernel, opcode) in one call: the report's, less what it counts more than once."""
    counts = evidence.instructions.counts
    times = counted_times(counts, evidence.run.launches)
    return tuple(_divided(count, times.get(count.kernel, 1.0)) for count in counts)


def counted_times(counts: Sequence[InstructionCount], launches: Iterable[KernelLaunch]) -> dict[str, float]:
    """How often a report counts each thread of a call, by kernel: every thread that ends executes ``EXIT`` once.

    Nsight Compute 2025.3 lists every launch twice in 19 of the self-test's 23 reports of several launches a call, and
    once in all 67 of a single one (``InstructionEvidence.launches``); why is unknown. Less than once is taken for once,
    and a kernel without both numbers is left out. ``launches`` are those of the timed calls.
    """
    ended: dict[str, int] = defaultdict(int)
    for count in counts:
        if count.opcode == EXIT:
            ended[count.kernel] += count.thread_inst_executed_true
    begun: dict[str, float] = defaultdict(float)
    for launch in launches:
        begun[launch.name] += prod((*launch.grid, *launch.block)) * launch.launches_per_call
    return {name: max(1.0, threads / begun[name]) for name, threads in ended.items() if begun[name] > 0}


def _divided(count: InstructionCount, times: float) -> InstructionCount:
    if times == 1.0:
        return count
    # What executed is never made to be nothing.
    executed = {
        name: max(1, round(number / times)) if (number := getattr(count, name)) else 0
        for name in ("inst_executed", "thread_inst_executed_true")
    }
    return count.model_copy(update=executed)
