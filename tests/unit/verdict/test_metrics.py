from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Target
from ptxbench.verdict.metrics import (
    LIMITS,
    Share,
    TurnResult,
    best_speedup,
    correctness_rate,
    fast_p,
    fast_p_inst,
    format_rate,
    format_speedup,
    nominal_turns,
    target_best_speedup,
    target_rate,
)


def turn(index: int, speedup: float | None = None, *, trajectory: str = "t0", target: Target = Target.EXECUTED):
    return TurnResult(trajectory, index, speedup is not None, target, speedup)


@st.composite
def turn_lists(draw: st.DrawFn) -> list[TurnResult]:
    keys = draw(st.sets(st.tuples(st.sampled_from("abc"), st.integers(0, 7)), max_size=24))
    rows = []
    for trajectory, index in sorted(keys):
        correct = draw(st.booleans())
        speedup = draw(st.none() | st.floats(0.001, 3.0)) if correct else None
        target = draw(st.sampled_from(Target))
        rows.append(TurnResult(trajectory, index, correct, target, speedup, excluded=draw(st.booleans())))
    return rows


limits = st.sampled_from(LIMITS)
thresholds = st.floats(0.0, 3.0)


@given(turn_lists(), limits)
def test_rates_are_bounded_and_inst_is_at_most_any(rows: list[TurnResult], limit: int) -> None:
    any_rate, inst_rate = correctness_rate(rows, limit), target_rate(rows, limit)
    assert 0 <= inst_rate.hits <= any_rate.hits <= any_rate.turns == inst_rate.turns
    assert 0.0 <= inst_rate.value <= any_rate.value <= 1.0


@given(turn_lists(), limits, thresholds, thresholds)
def test_fast_p_falls_with_p(rows: list[TurnResult], limit: int, one: float, two: float) -> None:
    low, high = sorted((one, two))
    for metric in (fast_p, fast_p_inst):
        assert metric(rows, high, limit).hits <= metric(rows, low, limit).hits
    assert fast_p_inst(rows, low, limit).hits <= fast_p(rows, low, limit).hits <= correctness_rate(rows, limit).hits


@given(turn_lists())
def test_best_speedup_grows_with_the_limit_and_inst_is_at_most_any(rows: list[TurnResult]) -> None:
    bests = [best_speedup(rows, limit) or 0.0 for limit in LIMITS]
    targets = [target_best_speedup(rows, limit) or 0.0 for limit in LIMITS]
    assert bests == sorted(bests)
    assert all(target <= best for target, best in zip(targets, bests, strict=True))


@given(turn_lists(), limits, thresholds)
def test_unknown_counts_as_absent_in_every_numerator(rows: list[TurnResult], limit: int, p: float) -> None:
    absent = [replace(row, target=Target.NOT_EXECUTED) if row.target is Target.UNKNOWN else row for row in rows]
    assert target_rate(rows, limit) == target_rate(absent, limit)
    assert fast_p_inst(rows, p, limit) == fast_p_inst(absent, p, limit)
    assert target_best_speedup(rows, limit) == target_best_speedup(absent, limit)


@st.composite
def shuffled(draw: st.DrawFn) -> tuple[list[TurnResult], list[TurnResult]]:
    rows = draw(turn_lists())
    return rows, draw(st.permutations(rows))


@given(shuffled(), limits, thresholds)
def test_order_of_turns_does_not_matter(both: tuple[list[TurnResult], list[TurnResult]], limit: int, p: float) -> None:
    rows, other = both
    assert correctness_rate(rows, limit) == correctness_rate(other, limit)
    assert target_rate(rows, limit) == target_rate(other, limit)
    assert fast_p(rows, p, limit) == fast_p(other, p, limit)
    assert fast_p_inst(rows, p, limit) == fast_p_inst(other, p, limit)
    assert best_speedup(rows, limit) == best_speedup(other, limit)
    assert target_best_speedup(rows, limit) == target_best_speedup(other, limit)


@given(turn_lists(), limits)
def test_names_of_trajectories_do_not_matter(rows: list[TurnResult], limit: int) -> None:
    renamed = [replace(row, trajectory=f"another-{row.trajectory}") for row in rows]
    assert target_rate(renamed, limit) == target_rate(rows, limit)


@given(turn_lists(), limits, thresholds, st.integers(0, 4))
def test_all_rates_of_a_cell_have_one_denominator(rows: list[TurnResult], limit: int, p: float, more: int) -> None:
    planned = len({row.trajectory for row in rows}) + more
    excluded = sum(row.excluded and row.turn < limit for row in rows)
    shares = [
        nominal_turns(rows, limit, planned),
        correctness_rate(rows, limit, planned),
        target_rate(rows, limit, planned),
        fast_p(rows, p, limit, planned),
        fast_p_inst(rows, p, limit, planned),
    ]
    assert {share.turns for share in shares} == {planned * limit - excluded}
    assert len({share.unneeded for share in shares}) == 1
    assert all(share.value <= share.value_of_needed for share in shares)


@given(turn_lists(), limits)
def test_a_cell_is_the_sum_of_its_trajectories(rows: list[TurnResult], limit: int) -> None:
    names = {row.trajectory for row in rows}
    parts = [correctness_rate([row for row in rows if row.trajectory == name], limit) for name in names]
    whole = correctness_rate(rows, limit)
    assert (whole.hits, whole.turns) == (sum(part.hits for part in parts), sum(part.turns for part in parts))


def test_fast_p_is_strict() -> None:
    rows = [turn(0, 0.8), turn(1, 0.8000001)]
    assert fast_p(rows, 0.8, 8).hits == 1


def test_limit_keeps_turns_below_it() -> None:
    rows = [turn(0), turn(1, 0.5), turn(4, 0.9)]
    assert [correctness_rate(rows, limit).hits for limit in LIMITS] == [0, 1, 2]
    assert [best_speedup(rows, limit) for limit in LIMITS] == [None, 0.5, 0.9]


def test_n_is_nominal() -> None:
    rows = [turn(0, 0.5), turn(0, trajectory="t1")]
    assert correctness_rate(rows, 8) == Share(hits=1, turns=16)
    assert correctness_rate(rows, 8, trajectories=3) == Share(hits=1, turns=24)


def test_reaching_the_target_is_reported_both_ways() -> None:
    rows = [turn(0, 0.5), replace(turn(1, 1.3), ended_by_target=True)]
    share = correctness_rate(rows, 8)
    assert share == Share(hits=2, turns=8, unneeded=6)
    assert (share.value, share.value_of_needed) == (0.25, 1.0)
    assert correctness_rate(rows, 1).unneeded == 0


def test_a_context_that_filled_up_is_not_forgiven() -> None:
    share = correctness_rate([turn(0, 0.5), turn(1)], 8)
    assert share.value == share.value_of_needed == 0.125


def test_infrastructure_turns_leave_numerator_and_denominator() -> None:
    rows = [turn(0, 0.5), replace(turn(1, 0.9), excluded=True), turn(2)]
    assert correctness_rate(rows, 4) == Share(hits=1, turns=3)
    assert best_speedup(rows, 4) == 0.5


def test_nothing_ran() -> None:
    assert correctness_rate([], 8).value == correctness_rate([], 8).value_of_needed == 0.0
    assert nominal_turns([], 8, trajectories=2) == Share(hits=0, turns=16)


@pytest.mark.parametrize(
    ("rows", "limit", "trajectories", "message"),
    [
        ([turn(0)], 0, None, "limit of at least 1"),
        ([turn(0), turn(0)], 1, None, "appears twice"),
        ([turn(0), turn(0, trajectory="t1")], 1, 1, "at most 1 trajectories"),
    ],
)
def test_misuse_is_refused(rows: list[TurnResult], limit: int, trajectories: int | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nominal_turns(rows, limit, trajectories)


@pytest.mark.parametrize(
    ("hits", "turns", "text"),
    [(0, 8, "-"), (1, 16, "6.2"), (3, 16, "18.8"), (7, 16, "43.8"), (1, 3, "33.3"), (1, 1, "100.0"), (1, 96, "1.0")],
)
def test_format_rate(hits: int, turns: int, text: str) -> None:
    assert format_rate(hits, turns) == text


@given(st.integers(1, 5000), st.integers(0, 5000))
def test_format_rate_is_the_nearest_tenth_half_even(hits: int, more: int) -> None:
    turns = hits + more
    text = format_rate(hits, turns)
    exact, shown = Fraction(100 * hits, turns), Fraction(text)
    assert abs(exact - shown) <= Fraction(1, 20)
    if abs(exact - shown) == Fraction(1, 20):
        assert int(text[-1]) % 2 == 0


@given(st.floats(0.0005, 9.0))
def test_format_speedup_is_the_nearest_thousandth(speedup: float) -> None:
    expected = Decimal(speedup).quantize(Decimal("0.001"), ROUND_HALF_EVEN)
    assert format_speedup(speedup) == f"{expected:.3f}"


def test_no_speedup_prints_as_a_dash() -> None:
    assert format_speedup(None) == "-"
    assert format_speedup(0.0625) == "0.062"


def test_a_turn_behind_the_end_that_is_left_out_of_n_is_left_out_once() -> None:
    end = replace(turn(1, 1.3), ended_by_target=True)
    others = [replace(turn(index), excluded=True) for index in (0, 2, 3)]
    share = correctness_rate([end, *others], 8)
    assert (share.hits, share.turns, share.unneeded) == (1, 5, 4)
    assert correctness_rate([end, *others], 3) == Share(1, 1, 0)
