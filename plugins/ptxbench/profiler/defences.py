"""Which defences are on: all of them, in every run. ``ptxbench selftest --without NAME`` alone switches one off.

A defence that changes no verdict when it is missing is decoration, so each can be switched off and the attacks that
pass then can be counted. Where the harness does something for a defence's sake, it asks ``active`` first. What was
decided holds for the process and never changes: the oracle gets the names on its command line
(``LocalProfiler(without=...)``), and evidence measured without a defence names it, so that no judge scores it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from ptxbench.errors import InputError

Layer = Literal["build", "measure", "judge"]
"""Where a defence works: when a candidate is built, when it is measured, or when the measurements are judged. What the
judge defends with can be switched off for evidence that was measured with all defences."""


DEFENCES: dict[str, Layer] = {
    "screen": "build",
    "containment": "measure",
    "poisoned_outputs": "measure",
    "fresh_inputs": "measure",
    "separate_seeds": "measure",
    "timed_checks": "measure",
    "element_rule": "measure",
    "inputs_compared": "measure",
    "guard_bands": "measure",
    "cold_cache": "measure",
    "families": "measure",
    "memcheck": "judge",
    "sanitizers": "judge",
    "loaded_code": "judge",
    "stray_activity": "judge",
    "clock_check": "judge",
    "physical_floor": "judge",
    "precision_gate": "judge",
    "instruction_counts": "judge",
    "tool_agreement": "judge",
    "useful_share": "judge",
}
"""Every defence that can be switched off, in the order in which a candidate meets them. ``tests/attacks/defences.yaml``
says what each does, and also names those without which nothing could be measured at all."""

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
