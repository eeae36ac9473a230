"""Bootstrap intervals of differences between two cells, over trajectories. Pure, and the same on every machine.

Whole trajectories of each side are drawn, with replacement and as many as it has, the two sides independently of each
other. One trajectory says nothing of how trajectories differ: with fewer than two on a side there is no interval.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxbench.report.gates.measure import Trajectory
from ptxbench.verdict.intervals import LEVEL, SEED, Interval, draws

_Statistic = Callable[[Sequence[Trajectory], int], list[float | None]]


def rate_difference(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> Interval | None:
    """Return the interval of a rate's difference, ``after`` less ``before``."""
    return _difference(before, after, _rates)


def best_difference(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> Interval | None:
    """Return the interval of a best speedup's difference; None also where a side has no speedup at all.

    A resample without a speedup counts as 0.
    """
    if not any(one.best for one in before) or not any(one.best for one in after):
        return None
    return _difference(before, after, _bests)


def _difference(before: Sequence[Trajectory], after: Sequence[Trajectory], statistic: _Statistic) -> Interval | None:
    if min(len(before), len(after)) < 2:
        return None
    pairs = zip(statistic(before, 0), statistic(after, 1), strict=True)
    # A resample without any turn in N has no rate.
    values = sorted(new - old for old, new in pairs if old is not None and new is not None)
    if not values:
        return None
    beyond = int(len(values) * (1 - LEVEL) / 2)
    return Interval(values[beyond], values[-1 - beyond])


def _rates(rows: Sequence[Trajectory], side: int) -> list[float | None]:
    hits, turns = [row.hits for row in rows], [row.turns for row in rows]
    drawn = draws(len(rows), _seed(side))
    counted = [sum(map(hits.__getitem__, draw)) for draw in drawn]
    if len(set(turns)) == 1:
        return [count / sum(turns) if sum(turns) else None for count in counted]
    given = [sum(map(turns.__getitem__, draw)) for draw in drawn]
    return [count / of if of else None for count, of in zip(counted, given, strict=True)]


def _bests(rows: Sequence[Trajectory], side: int) -> list[float | None]:
    bests = [row.best or 0.0 for row in rows]
    return [max(map(bests.__getitem__, draw)) for draw in draws(len(rows), _seed(side))]


def _seed(side: int) -> int:
    """Each side draws by itself, and neither as the intervals within a report."""
    return SEED + 1 + side
