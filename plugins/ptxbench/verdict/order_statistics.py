"""A distribution-free interval of a median, by order statistics.

The number of samples below the true median is binomial with probability 1/2 whatever the distribution, so the j-th
smallest and the j-th largest of n samples enclose it with probability ``1 - 2 P(Binomial(n, 1/2) < j)``. j is the
largest with at least ``LEVEL`` (for 150 samples: 63, so the 63rd and the 88th). W. J. Conover, Practical Nonparametric
Statistics, confidence interval for a quantile.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ptxbench.verdict.intervals import LEVEL, Interval


def median_interval(samples: Sequence[float], estimate: float) -> Interval | None:
    """Return the interval of the median of the samples, widened to hold ``estimate``.

    None for fewer than 6 samples, of which the smallest and the largest enclose it with less than ``LEVEL``.
    """
    rank = _rank(len(samples))
    if rank == 0:
        return None
    ordered = sorted(samples)
    return Interval(min(ordered[rank - 1], estimate), max(ordered[-rank], estimate))


def _rank(count: int) -> int:
    """The largest j of the module's text, 0 where there is none."""
    # Whole numbers: a float ends at 1,023 samples. Of the ways to choose ``rank`` samples, each count gives the next.
    ways, beyond, rank = 1, 0, 0
    most = int(Fraction(1 - LEVEL) / 2 * 2**count)
    while rank < count // 2 and (beyond := beyond + ways) <= most:
        ways = ways * (count - rank) // (rank + 1)
        rank += 1
    return rank
