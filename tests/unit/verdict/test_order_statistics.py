"""The distribution-free interval of a median."""

import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.verdict.order_statistics import median_interval


@pytest.mark.parametrize(("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_ranks_are_those_of_the_published_tables(count: int, rank: int) -> None:
    """Two-sided 95% confidence intervals of the median, as in tables of the sign test."""
    interval = median_interval(range(1, count + 1), (count + 1) / 2)
    assert interval == (rank, count + 1 - rank)


@pytest.mark.parametrize("count", [0, 1, 3, 5])
def test_few_samples_have_none(count: int) -> None:
    assert median_interval([1.0] * count, 1.0) is None


def test_it_covers_the_true_median_as_often_as_it_says() -> None:
    draw = random.Random(7)
    covered = 0
    for _ in range(2_000):
        samples = [draw.expovariate(1.0) for _ in range(150)]  # true median: ln 2
        interval = median_interval(samples, median(samples))
        assert interval is not None
        covered += interval.low <= 0.6931471805599453 <= interval.high
    assert 0.94 <= covered / 2_000 <= 0.975


@given(st.lists(st.floats(0, 1e9), min_size=6, max_size=80), st.floats(0, 1e9))
def test_it_holds_the_estimate_and_lies_within_the_samples(samples: list[float], estimate: float) -> None:
    interval = median_interval(samples, estimate)
    assert interval is not None
    assert interval.low <= estimate <= interval.high
    assert min(*samples, estimate) <= interval.low <= interval.high <= max(*samples, estimate)
    assert interval == median_interval(samples[::-1], estimate)


def test_a_suite_may_have_any_number_of_iterations() -> None:
    """From 1,024 samples on, 2 to their power is beyond every float."""
    interval = median_interval(range(1, 2_001), 1_000.5)
    assert interval == (956, 1_045)  # 1,000 - 1.96 x sqrt(2,000) / 2 = 956.2
