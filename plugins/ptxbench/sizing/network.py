"""A fleet as a closed queueing network: agents that wait for a model, then for a processor, then for a GPU.

The product form of Gordon and Newell (1967), with the model as a station where nobody waits and the others as queues
with several servers, solved by Buzen's convolution (1973). It is exact where processors and GPUs take exponentially
distributed times, whatever the model's are; ``simulation`` says what that costs where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from ptxbench.sizing.times import TurnTimes


class Load(NamedTuple):
    """A fleet in its steady state."""

    turns_per_s: float
    gpu_wait_s: float
    """That a turn waits for a GPU, on average."""
    build_wait_s: float
    gpu_busy: float
    """Share of the GPUs' time, 0..1."""
    cpu_busy: float


def load(times: TurnTimes, agents: int, processors: int, gpus: int) -> Load:
    """The fleet's throughput and waits. All counts are at least 1."""
    build_s, gpu_s = times.build.mean_s, times.gpu.mean_s
    # Terms are scaled by a rate near the result, so that what is left out as too small is.
    rate = min(agents / times.unhindered_s, processors / build_s, gpus / gpu_s)
    thinking = _scaled(_poisson(rate * times.model.mean_s, agents))
    building = _scaled(_servers(rate * build_s, processors, agents))
    measuring = _scaled(_servers(rate * gpu_s, gpus, agents))
    rest = _convolved(thinking, building)
    whole, one_less = _dot(rest, measuring, agents), _dot(rest, measuring, agents - 1)
    turns_per_s = rate * one_less / whole
    at_gpus = sum(n * measuring[n] * rest[agents - n] for n in range(agents + 1)) / whole
    others = _convolved(thinking, measuring)
    at_processors = sum(n * building[n] * others[agents - n] for n in range(agents + 1)) / whole
    return Load(
        turns_per_s=turns_per_s,
        gpu_wait_s=max(0.0, at_gpus / turns_per_s - gpu_s),
        build_wait_s=max(0.0, at_processors / turns_per_s - build_s),
        gpu_busy=turns_per_s * gpu_s / gpus,
        cpu_busy=turns_per_s * build_s / processors,
    )


def _poisson(mean: float, most: int) -> list[float]:
    """Logarithms of a station without a queue."""
    return [n * math.log(mean) - math.lgamma(n + 1) for n in range(most + 1)]


def _servers(demand: float, servers: int, most: int) -> list[float]:
    """Logarithms of a queue with several servers."""
    found = [0.0]
    for n in range(1, most + 1):
        found.append(found[-1] + math.log(demand / min(n, servers)))
    return found


def _scaled(logarithms: Sequence[float]) -> list[float]:
    most = max(logarithms)
    return [math.exp(value - most) for value in logarithms]


def _convolved(first: Sequence[float], second: Sequence[float]) -> list[float]:
    return [_dot(first, second, total) for total in range(len(first))]


def _dot(first: Sequence[float], second: Sequence[float], total: int) -> float:
    """The term of a convolution for ``total`` agents."""
    found: float = sum(map(mul, first[: total + 1], second[total::-1]))
    return found
