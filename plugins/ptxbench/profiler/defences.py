"""Which defences are on: all of them, in every run. ``ptxbench selftest --without NAME`` alone switches one off.

A defence that changes no verdict when it is missing is decoration, so each can be switched off and the attacks that pass
then can be counted. Where the harness does something for a defence's sake, it asks ``active`` first. What was decided
holds for the process and never changes: the oracle gets the names on its command line (``LocalProfiler(without=...)``),
and evidence measured without a defence names it, so that no judge scores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ptxbench.errors import InputError

Layer = Literal["build", "measure", "judge"]
"""Where a defence works: when a candidate is built, when it is measured, or when the measurements are judged."""


class Defence(NamedTuple):
    """One defence."""

    layer: Layer
    does: str
    """One sentence, as docs/trust.md prints it."""


DEFENCES: dict[str, Defence] = {
    "screen": Defence("build", "Source, object and linked library are searched for code that would do the work."),
    "poisoned_outputs": Defence("measure", "Every output is filled with NaN before every checked and timed call."),
    "fresh_inputs": Defence("measure", "Every timed iteration has other data at the same addresses."),
    "separate_seeds": Defence("measure", "No timed iteration has the data of a correctness call."),
    "timed_checks": Defence("measure", "Timed iterations, chosen in secret, are compared in full."),
    "inputs_compared": Defence(
        "measure", "Inputs are compared with what was staged, bit by bit, behind checked calls."
    ),
    "guard_bands": Defence("measure", "Random words around every tensor must be intact behind every checked call."),
    "families": Defence("measure", "One call on each other family of inputs: shifted, spiky, odd lengths."),
    "cold_cache": Defence("measure", "L2 is flushed before every call, and what was made to persist in it is let go."),
    "memcheck": Defence("measure", "compute-sanitizer's memcheck on buffers of exactly the tensors' sizes."),
    "containment": Defence("measure", "The candidate's process has no way to files, processes and networks of others."),
    "loaded_code": Defence("judge", "Every kernel that ran is the object's own, and nothing else was loaded."),
    "clock_check": Defence("judge", "A span that the oracle's own clock does not confirm is replaced by that clock's."),
    "physical_floor": Defence("judge", "A latency below the roofline of the workload has no speedup."),
    "stray_activity": Defence("judge", "Device work that starts outside every call withholds the speedup."),
    "precision_gate": Defence("judge", "Errors beyond four times the library's own withhold the speedup."),
    "instruction_counts": Defence(
        "judge", "Target instructions count where they executed, not where they are present."
    ),
    "useful_share": Defence("judge", "A decoy is told by the share of the FLOPs that its instructions did."),
    "tool_agreement": Defence("judge", "The same kernels and right outputs under Nsight Compute as without it."),
}
"""Every defence that can be switched off, in the order in which a candidate meets them."""

_off: frozenset[str] = frozenset()


def known(names: Iterable[str]) -> tuple[str, ...]:
    """The names, each once and in the order of ``DEFENCES``. Raises InputError for one that is no defence."""
    wanted = set(names)
    if wrong := sorted(wanted - set(DEFENCES)):
        raise InputError(f"expected names of defences, found {', '.join(wrong)}; there are {', '.join(DEFENCES)}")
    return tuple(name for name in DEFENCES if name in wanted)


def switch_off(names: Iterable[str]) -> None:
    """Switch defences off in this process, once, as it starts. Raises InputError for unknown names."""
    global _off
    _off = frozenset(known(names))


def active(name: str) -> bool:
    """Whether a defence is on. Raises KeyError for a name that is none: a switch without a defence would do nothing."""
    if name not in DEFENCES:
        raise KeyError(name)
    return name not in _off


def switched_off() -> tuple[str, ...]:
    """Names of the defences that are off in this process."""
    return known(_off)
