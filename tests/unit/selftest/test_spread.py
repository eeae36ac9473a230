"""Intervals of a median from order statistics, and the table of the spread."""

from __future__ import annotations

import random

from ptxbench.selftest.spread import Spread, lines, median_interval


def test_known_ranks() -> None:
    # Tables of the binomial distribution: of 10 values the 2nd and 9th (97.9%), of 20 the 6th and 15th (95.9%).
    assert median_interval(range(1, 11)) == (2, 9)
    assert median_interval(range(1, 21)) == (6, 15)
    assert median_interval(range(6)) == (0, 5)
    assert median_interval(range(5)) is None


def test_it_covers_the_median_as_often_as_it_says() -> None:
    dice = random.Random(7)
    drawn = [[dice.expovariate(1.0) for _ in range(15)] for _ in range(2_000)]
    truth = 0.6931  # of the exponential distribution
    intervals = [median_interval(values) for values in drawn]
    share = sum(1 for found in intervals if found and found.low <= truth <= found.high) / len(drawn)
    assert 0.95 <= share < 0.985


def test_the_table() -> None:
    spread = Spread(
        case="gemm",
        latencies_ms=(1.0, 1.01, 0.99, 1.0, 1.02, 1.0),
        baselines_ms=(0.9,) * 6,
        device="a device",
        driver="1",
        measured_at=("2026-11-30T00:00:00+00:00",) * 6,
        commit="unknown",
    )
    assert abs(spread.relative_range - 0.03) < 1e-9
    head, row = lines([spread])
    assert head.split()[0] == "case"
    assert row.split() == ["gemm", "6", "1.0000", "0.9900", "to", "1.0200", "3.00%", "0.00%"]
