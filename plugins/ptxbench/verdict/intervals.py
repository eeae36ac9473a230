"""Bootstrap intervals of a cell's metrics: percentile, over trajectories. Pure, and the same on every machine.

Turns of one trajectory hang together, each following from the ones before, so whole trajectories are drawn, with
replacement and as many as there are. One trajectory alone says nothing of how trajectories differ: it has no interval.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

RESAMPLES = 2_000
LEVEL = 0.95
SEED = 2608
"""The draws depend on it and on the number of trajectories alone, so that equal turns have equal intervals."""


class Interval(NamedTuple):
    """Ends of a confidence interval of coverage ``LEVEL``, which holds the estimate itself."""

    low: float
    high: float


class Counts(NamedTuple):
    """What a rate counts in each trajectory of a cell. All rates of the cell have the trajectories in one order."""

    hits: tuple[int, ...]
    turns: tuple[int, ...]


def rate_intervals(rates: Sequence[Counts]) -> list[Interval | None]:
    """Return the intervals of rates of one cell; None for fewer than two trajectories, or where N is 0.

    A resample without any turn in N, which has no rate, is passed over. Raises ValueError for rates of different
    numbers of trajectories.
    """
    if not rates:
        return []
    trajectories = len(rates[0].hits)
    varying = [rate for rate in rates if not _is_constant(rate)]
    columns = list(dict.fromkeys(column for rate in varying for column in rate))
    if any(len(column) != trajectories for rate in rates for column in rate):
        raise ValueError("expected the rates of one cell to count in the same trajectories, found different numbers")
    if trajectories < 2:
        return [None] * len(rates)
    sums = dict(zip(columns, _resampled_sums(columns), strict=True)) if columns else {}
    return [_rate_interval(rate, sums) for rate in rates]


def best_interval(bests: Sequence[float | None]) -> Interval | None:
    """Return the interval of the largest of the trajectories' best speedups.

    ``bests`` has None where a trajectory has none; a resample of such trajectories alone counts as 0. None where there
    is no best at all, or for fewer than two trajectories.
    """
    known = [best for best in bests if best is not None]
    if len(bests) < 2 or not known:
        return None
    values = [best or 0.0 for best in bests]
    return _interval([max(map(values.__getitem__, draw)) for draw in draws(len(bests))], max(known))


@lru_cache(maxsize=8)
def draws(trajectories: int, seed: int = SEED) -> tuple[array[int], ...]:
    """Return ``RESAMPLES`` draws of as many trajectories as there are, each as their indices, with replacement."""
    # Of the generator's methods, only random() is promised to give the same numbers in every version of Python.
    draw = Random(seed).random
    return tuple(array("I", [int(draw() * trajectories) for _ in range(trajectories)]) for _ in range(RESAMPLES))


def _resampled_sums(columns: Sequence[Sequence[int]]) -> list[list[int]]:
    """The sum of each column over each resample.

    A trajectory's row is one large integer of 64-bit fields, so that one addition adds all columns: without, a report
    of 40 cells would take ten seconds longer.
    """
    packed = [int.from_bytes(array("Q", row).tobytes(), sys.byteorder) for row in zip(*columns, strict=True)]
    size = array("Q").itemsize * len(columns)
    rows = []
    for draw in draws(len(packed)):
        row = array("Q")
        row.frombytes(sum(map(packed.__getitem__, draw)).to_bytes(size, sys.byteorder))
        rows.append(row)
    return [list(column) for column in zip(*rows, strict=True)]


def _is_constant(rate: Counts) -> bool:
    """Whether all trajectories have the same, so that every resample has the same rate, as most of a weak model do."""
    return len(set(rate.hits)) == 1 == len(set(rate.turns))


def _rate_interval(rate: Counts, sums: Mapping[tuple[int, ...], Sequence[int]]) -> Interval | None:
    total = sum(rate.turns)
    if total == 0:
        return None
    estimate = sum(rate.hits) / total
    if _is_constant(rate):
        return Interval(estimate, estimate)
    pairs = zip(sums[rate.hits], sums[rate.turns], strict=True)
    return _interval([hits / turns for hits, turns in pairs if turns], estimate)


def _interval(resampled: list[float], estimate: float) -> Interval:
    resampled.sort()
    beyond = int(len(resampled) * (1 - LEVEL) / 2)
    low, high = resampled[beyond], resampled[-1 - beyond]
    # So that the promise holds for every distribution, however skewed.
    return Interval(min(low, estimate), max(high, estimate))
