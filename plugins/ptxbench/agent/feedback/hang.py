"""A kernel that does not end.

First where its threads were, if a debugger could tell; then in which call, what the object holds and what ran before.
"""

from __future__ import annotations

import re

from ptxbench.agent.feedback.kernels import static_kernels
from ptxbench.agent.feedback.opcodes import SYNCHRONIZING, holds
from ptxbench.agent.feedback.output_tail import printed
from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.progress import progress
from ptxbench.agent.feedback.waiting import waiting_facts
from ptxbench.agent.feedback.wording import lines_with, listed, numbers, safe, short_name
from ptxbench.records import NO_KERNEL_RAN, KernelSass

_SETMAXNREG = re.compile(r"setmaxnreg\.(inc|dec)\S*\s+(\d+)")


def describe(turn: Turn) -> Parts:
    """Where it waits, in which call, which kernels can have been running, what in them can wait, where to look."""
    run = turn.evidence.run
    if run.waiting_unknown == NO_KERNEL_RAN:
        return _on_the_host(turn)
    facts = waiting_facts(turn)
    facts += [f"It was stopped: {safe(run.message) or 'out of time'}.", progress(run, turn.case), _launched(turn)]
    facts += [_waits(kernel.kernel, kernel.opcodes) for kernel in _suspects(turn)]
    facts += [*_barrier_lines(turn), *static_kernels(turn), *printed(run)]
    return Parts(
        "Your kernel did not end within the time limit: it hangs, or is slower by orders of magnitude.",
        tuple(fact for fact in facts if fact),
        tuple(_advice(turn)),
    )


def _on_the_host(turn: Turn) -> Parts:
    """No kernel ran when it was looked at: what kernels hold says nothing."""
    run = turn.evidence.run
    facts = (*waiting_facts(turn), f"It was stopped: {safe(run.message) or 'out of time'}.", progress(run, turn.case))
    return Parts(
        "Your kernel did not end within the time limit: its host code hangs, or is slower by orders of magnitude.",
        (*(fact for fact in facts if fact), *printed(run)),
        ("Look at loops, locks and waits of the host code between the entry of `run` and its return.",),
    )


def _launched(turn: Turn) -> str:
    names = [short_name(launch.name) for launch in turn.evidence.run.launches]
    if names:
        return f"Kernels that ran to their end in earlier calls: {listed(names)}."
    own = [] if turn.evidence.run.waiting else [short_name(name) for name in turn.build.kernels]
    return f"No call had ended before, so any kernel of the object can be the one: {listed(own)}." if own else ""


def _suspects(turn: Turn) -> list[KernelSass]:
    """The kernels that were seen waiting; all of the object where none is known."""
    seen = {place.kernel for place in turn.evidence.run.waiting}
    kernels = [kernel for cubin in turn.build.cubins for kernel in cubin.kernels]
    return [kernel for kernel in kernels if kernel.kernel in seen] or kernels


def _waits(kernel: str, opcodes: dict[str, int]) -> str:
    held = {what: sum(opcodes.get(opcode, 0) for opcode in names) for what, names in SYNCHRONIZING.items()}
    shown = ", ".join(f"{what} {number}" for what, number in held.items() if number)
    return f"{short_name(kernel)} holds (lines of SASS): {shown or 'nothing that waits for another thread'}."


def _barrier_lines(turn: Turn) -> list[str]:
    """Where the source sets up, signals and waits for barriers."""
    kinds = (
        ("initialized", ("mbarrier.init",)),
        ("told how many bytes to expect", ("expect_tx",)),
        (
            "arrived at",
            ("mbarrier.arrive.shared", "mbarrier.arrive.release", "mbarrier.arrive.b64", "mbarrier::arrive"),
        ),
        ("waited for", ("mbarrier.try_wait", "mbarrier.test_wait")),
    )
    found = [(what, lines_with(turn.source, *words)) for what, words in kinds]
    shown = "; ".join(f"{what} at {numbers(lines)}" for what, lines in found if lines)
    return [f"In your source mbarriers are {shown}."] if shown else []


def _advice(turn: Turn) -> list[str]:
    advice = []
    if holds(turn, "mbarrier operations"):
        advice.append(
            "mbarriers: the count of mbarrier.init must equal the arrivals of one phase (an expect_tx arrival is one; "
            "TMA itself is none); a waiter must flip its parity each time the ring of stages wraps, and a producer "
            "waiting for empty slots starts with the opposite parity; fence and synchronize after init."
        )
    if holds(turn, "TMA loads"):
        advice.append(
            "TMA: expect_tx must name exactly the bytes of all boxes that signal the barrier, clipped parts and "
            "multicast copies included; one elected thread issues them."
        )
    registers = _SETMAXNREG.findall(turn.source)
    if registers and holds(turn, "setmaxnreg"):
        values = listed(f"{kind} {value}" for kind, value in dict.fromkeys(registers))
        advice.append(
            f"setmaxnreg ({values}): an increase waits until the registers are free; over all warpgroups of the block "
            "the sum of values x 128 must not exceed the registers at launch x threads, and every warpgroup that "
            "must give some up has to reach its decrease."
        )
    if holds(turn, "cluster barriers"):
        advice.append("Clusters: all threads of all blocks must reach each cluster barrier; no block may exit early.")
    if holds(turn, "block barriers"):
        advice.append(
            "Block barriers: __syncthreads() in a branch that only some warps take never completes; a named barrier's "
            "thread count must be that of the warps that come to it."
        )
    if holds(turn, "global atomics"):
        advice.append(
            "Waiting between blocks: a block can wait for another only if both are resident; a counter must be reset "
            "for the next call, and read with volatile or acquire semantics."
        )
    return advice or ["No barrier can be at fault: look for a loop whose condition never becomes false."]
