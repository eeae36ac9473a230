"""The smallest number of processors and GPUs with which a fleet is hardly held up."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ptxbench.errors import InputError
from ptxbench.sizing.network import Load, load
from ptxbench.sizing.times import TurnTimes

MAX_AGENTS = 5000
"""The convolution takes time with the square: some seconds here."""


class Size(NamedTuple):
    """What a fleet needs."""

    agents: int
    processors: int
    gpus: int
    load: Load


def slowdown(times: TurnTimes, found: Load) -> float:
    """How much longer turns take than they would alone: 0.05 for a twentieth."""
    return (found.gpu_wait_s + found.build_wait_s) / times.unhindered_s


def expect_sizable(agents: int) -> None:
    """Raises InputError for more agents than the model takes."""
    if agents > MAX_AGENTS:
        raise InputError(f"--agents: expected at most {MAX_AGENTS}, found {agents}; size a part of the fleet")


def size(times: TurnTimes, agents: int, allowed: float) -> Size:
    """The fewest processors that use up at most a quarter of the ``allowed`` slowdown, and the fewest GPUs that keep
    within all of it. Processors are the cheaper ones. Raises InputError for more than ``MAX_AGENTS`` agents."""
    expect_sizable(agents)
    processors = _fewest(agents, lambda count: slowdown(times, load(times, agents, count, agents)) <= allowed / 4)
    gpus = _fewest(agents, lambda count: slowdown(times, load(times, agents, processors, count)) <= allowed)
    return Size(agents, processors, gpus, load(times, agents, processors, gpus))


def _fewest(most: int, enough: Callable[[int], bool]) -> int:
    """By halving: more is never worse, and one for each agent leaves nobody waiting."""
    least = 1
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle + 1, most)
    return most
