import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.verdict.intervals import Counts, Interval, best_interval, rate_intervals


@st.composite
def counts(draw: st.DrawFn, trajectories: int) -> Counts:
    turns = draw(st.lists(st.integers(0, 8), min_size=trajectories, max_size=trajectories))
    return Counts(tuple(draw(st.integers(0, turn)) for turn in turns), tuple(turns))


@st.composite
def cells(draw: st.DrawFn) -> list[Counts]:
    trajectories = draw(st.integers(2, 14))
    return draw(st.lists(counts(trajectories), min_size=1, max_size=5))


few = settings(max_examples=40)
"""Each example draws thousands of resamples."""


@few
@given(cells())
def test_an_interval_of_a_rate_holds_the_rate_and_stays_between_0_and_1(rates: list[Counts]) -> None:
    for rate, interval in zip(rates, rate_intervals(rates), strict=True):
        if sum(rate.turns) == 0:
            assert interval is None
            continue
        assert interval is not None
        assert 0.0 <= interval.low <= sum(rate.hits) / sum(rate.turns) <= interval.high <= 1.0


@few
@given(cells())
def test_a_rate_has_the_same_interval_alone_and_beside_others(rates: list[Counts]) -> None:
    assert [rate_intervals([rate])[0] for rate in rates] == rate_intervals(rates)


@few
@given(st.lists(st.none() | st.floats(0.01, 3.0), min_size=2, max_size=14))
def test_an_interval_of_a_best_speedup_holds_it_and_goes_no_higher(bests: list[float | None]) -> None:
    known = [best for best in bests if best is not None]
    interval = best_interval(bests)
    if not known:
        assert interval is None
        return
    assert interval is not None
    assert interval.low <= interval.high == max(known)
    assert interval.low in (0.0, *known)


def test_an_interval_is_as_wide_as_trajectories_differ() -> None:
    alike = Counts((2,) * 12, (8,) * 12)
    apart = Counts((8, 8, 8, *(0,) * 9), (8,) * 12)
    narrow, wide = rate_intervals([alike, apart])
    assert narrow == Interval(0.25, 0.25)
    assert wide is not None
    assert wide == pytest.approx((0.0, 0.5), abs=0.01)


def test_the_percentiles_are_those_of_the_binomial_distribution() -> None:
    # One hit in half of 100 trajectories of one turn: resamples are binomial(100, 1/2) / 100.
    (interval,) = rate_intervals([Counts((1,) * 50 + (0,) * 50, (1,) * 100)])
    assert interval == pytest.approx((0.40, 0.60), abs=0.011)


def test_one_trajectory_has_no_interval() -> None:
    assert rate_intervals([Counts((3,), (8,))]) == [None]
    assert best_interval([0.9]) is None
    assert rate_intervals([]) == []


def test_rates_of_different_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="different numbers"):
        rate_intervals([Counts((1, 2), (8, 8)), Counts((1, 2, 3), (8, 8, 8))])
