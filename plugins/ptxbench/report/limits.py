"""The metrics of one cell at its turn limits, with their intervals. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ptxbench.records import TurnRecord
from ptxbench.report.cell import AtLimit, FastP, Interval, Rate
from ptxbench.report.hits import is_hit
from ptxbench.verdict import intervals
from ptxbench.verdict.intervals import Counts
from ptxbench.verdict.metrics import (
    FAST_P,
    Share,
    TurnResult,
    best_speedup,
    correctness_rate,
    fast_p,
    fast_p_inst,
    target_best_speedup,
    target_rate,
)

ShareOf = Callable[[Sequence[TurnResult], int, int], Share]
"""A rate of some turns at a limit, over so many trajectories."""


class _Wanted(NamedTuple):
    """A rate of a cell."""

    share_of: ShareOf
    limit: int
    unknown: int


def at_limits(
    records: Sequence[TurnRecord], rows: Sequence[TurnResult], limits: Sequence[int], trajectories: int
) -> tuple[AtLimit, ...]:
    """Return the metrics of a cell at each of some turn limits.

    ``rows`` are its turns, those that are left out of N included; ``records`` says what is unknown of them.
    """
    by_trajectory = _by_trajectory(rows, trajectories)
    shares = [_Wanted(share, limit, unknown) for limit in limits for share, unknown in _shares(records, limit)]
    rates = _rates(shares, rows, by_trajectory)
    each = len(rates) // len(limits)
    return tuple(
        _at_limit(limit, rates[each * index : each * (index + 1)], rows, by_trajectory)
        for index, limit in enumerate(limits)
    )


def _shares(records: Sequence[TurnRecord], limit: int) -> Iterator[tuple[ShareOf, int]]:
    """Each rate with the number of turns that might be hits, in the order in which ``_at_limit`` takes them."""
    verdicts = [record.verdict for record in records if record.key.turn < limit]

    def unknown(*, inst: bool, above: float | None = None) -> int:
        return sum(is_hit(verdict, inst=inst, above=above) is None for verdict in verdicts)

    yield correctness_rate, unknown(inst=False)
    yield target_rate, unknown(inst=True)
    for p in FAST_P:
        yield _above(fast_p, p), unknown(inst=False, above=p)
        yield _above(fast_p_inst, p), unknown(inst=True, above=p)


def _at_limit(
    limit: int, rates: Sequence[Rate], rows: Sequence[TurnResult], by_trajectory: Sequence[Sequence[TurnResult]]
) -> AtLimit:
    correct, target, *fast = rates
    return AtLimit(
        limit=limit,
        correct=correct,
        target=target,
        best_speedup=best_speedup(rows, limit),
        target_best_speedup=target_best_speedup(rows, limit),
        best_speedup_interval=_best(best_speedup, by_trajectory, limit),
        target_best_speedup_interval=_best(target_best_speedup, by_trajectory, limit),
        fast_p=tuple(
            FastP(p=p, any=any_, inst=inst) for p, any_, inst in zip(FAST_P, fast[::2], fast[1::2], strict=True)
        ),
    )


def _above(share_of: Callable[[Sequence[TurnResult], float, int, int], Share], p: float) -> ShareOf:
    return lambda rows, limit, trajectories: share_of(rows, p, limit, trajectories)


def _by_trajectory(rows: Sequence[TurnResult], trajectories: int) -> list[list[TurnResult]]:
    """The turns of each trajectory, in order of their names; one that was planned and has no turn is empty."""
    found: dict[str, list[TurnResult]] = defaultdict(list)
    for row in rows:
        found[row.trajectory].append(row)
    listed = [found[name] for name in sorted(found)]
    return listed + [[] for _ in range(trajectories - len(listed))]


def _rates(
    wanted: Sequence[_Wanted], rows: Sequence[TurnResult], by_trajectory: Sequence[Sequence[TurnResult]]
) -> list[Rate]:
    counts: list[Counts] = []
    for share_of, limit, _ in wanted:
        parts = [share_of(turns, limit, 1) for turns in by_trajectory]
        hits = tuple(part.hits for part in parts)
        counts.append(Counts(hits, tuple(part.turns for part in parts)))
        counts.append(Counts(hits, tuple(part.turns - part.unneeded for part in parts)))
    found = iter([_record(interval) for interval in intervals.rate_intervals(counts)])
    rates = []
    for share_of, limit, unknown in wanted:
        share = share_of(rows, limit, len(by_trajectory))
        rates.append(
            Rate(
                hits=share.hits,
                turns=share.turns,
                unneeded=share.unneeded,
                unknown=unknown,
                value=share.value,
                value_of_needed=share.value_of_needed,
                interval=next(found),
                interval_of_needed=next(found),
            )
        )
    return rates


def _best(
    best_of: Callable[[Sequence[TurnResult], int], float | None],
    by_trajectory: Sequence[Sequence[TurnResult]],
    limit: int,
) -> Interval | None:
    return _record(intervals.best_interval([best_of(turns, limit) for turns in by_trajectory]))


def _record(interval: intervals.Interval | None) -> Interval | None:
    return None if interval is None else Interval(low=interval.low, high=interval.high)
