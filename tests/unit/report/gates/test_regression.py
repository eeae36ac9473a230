"""A report against an earlier one: what may fall by how much, and what keeps it from being known."""

from fractions import Fraction

import pytest

from ptxbench.report import build_report
from ptxbench.report.gates import Answer, judge_regression
from tests.unit.report.reports import CELL, INFRASTRUCTURE, UNKNOWN, WRONG, made, partial, records, report

FIVE = Fraction(5, 100)
BEFORE = report([made(1.0), made(0.8), WRONG, WRONG])


def test_the_same_is_kept():
    held = judge_regression(BEFORE, BEFORE, Fraction(0))
    assert held.answer is Answer.MET
    assert held.summary == "4 of 4 values of 1 cell kept"


@pytest.mark.parametrize(
    ("speedup", "most", "answer"),
    [
        (0.96, FIVE, "MET"),
        (0.95, FIVE, "MET"),
        (0.94, FIVE, "FAILED"),
        (0.94, Fraction(6, 100), "MET"),
        (1.5, Fraction(0), "MET"),
    ],
)
def test_a_speedup_may_fall_by_a_share(speedup, most, answer):
    held = judge_regression(BEFORE, report([made(speedup), made(0.8), WRONG, WRONG]), most)
    assert held.answer is Answer[answer]


def test_the_worst_comes_first_and_says_what_it_was():
    held = judge_regression(BEFORE, report([made(0.9), WRONG, WRONG, WRONG]), FIVE)
    assert [str(drop) for drop in held.drops if drop.answer is Answer.FAILED] == [
        f"claude {CELL.case} h100 correct.at(4): 50.0% -> 25.0% (-50.0%)",
        f"claude {CELL.case} h100 target.at(4): 50.0% -> 25.0% (-50.0%)",
        f"claude {CELL.case} h100 best_speedup.at(4): 1.000 -> 0.900 (-10.0%)",
        f"claude {CELL.case} h100 best_speedup.inst.at(4): 1.000 -> 0.900 (-10.0%)",
    ]


@pytest.mark.parametrize(
    ("after", "notes"),
    [
        ([made(1.0), UNKNOWN, WRONG, WRONG], {"1 unknown turn: up to 50.0%", "1 turn of unknown speed"}),
        ([UNKNOWN] * 4, {"4 unknown turns: up to 100.0%", "4 turns of unknown speed"}),
        ([INFRASTRUCTURE] * 4, {"4 unknown turns: up to 100.0%", "4 turns of unknown speed"}),
    ],
)
def test_what_unknown_turns_decide_is_not_kept(after, notes):
    held = judge_regression(BEFORE, report(after), FIVE)
    assert held.answer in (Answer.UNKNOWN, Answer.FAILED)
    assert {drop.note for drop in held.drops} == notes


def test_limits_are_what_both_gave():
    held = judge_regression(BEFORE, report([made(1.0), made(0.8)]), FIVE)
    assert (held.answer, held.drops[0].limit) == (Answer.MET, 2)


def test_what_had_no_value_cannot_fall():
    held = judge_regression(report([WRONG]), report([WRONG]), FIVE)
    assert (held.answer, held.drops) == (Answer.UNKNOWN, ())


def test_cells_of_one_side_are_counted_and_asked_for_ones_are_missed():
    other = "mha_with_lse_d128"
    both = build_report([*records([[made(1.0)]]), *records([[made(1.0)]], case=other)])
    one = report([made(1.0)])
    assert judge_regression(both, one, FIVE).summary.endswith(
        "1 cell of the baseline not in this session, so that nobody knows what became of it"
    )
    assert judge_regression(one, both, FIVE).summary.endswith("1 cell not in the baseline")
    missed = judge_regression(both, one, FIVE, [CELL._replace(case=other)])
    assert missed.answer is Answer.UNKNOWN
    assert missed.drops[0].note == "no turn has a record"
    assert missed.summary == "4 of 8 values of 2 cells kept"


def test_a_session_without_some_of_the_baseline_keeps_nothing_for_certain():
    both = build_report([*records([[made(1.0)]]), *records([[made(1.0)]], case="mha_with_lse_d128")])
    held = judge_regression(both, report([made(1.0)]), FIVE)
    assert held.answer is Answer.UNKNOWN
    assert {drop.answer for drop in held.drops} == {Answer.MET}


def test_turns_that_were_not_asked_for_may_have_fallen():
    held = judge_regression(report([made(1.0)] * 4), partial([made(1.0)] * 2, turns=4), FIVE)
    assert held.answer is Answer.UNKNOWN
    assert str(held.drops[0]).endswith("100.0% -> 50.0% (-50.0%), 2 unknown turns: up to 100.0%")
    # The baseline's own value is over its own N.
    partly = partial([made(1.0)] * 2, turns=4)
    assert judge_regression(partly, report([made(1.0), made(1.0), WRONG, WRONG]), FIVE).answer is Answer.FAILED


def test_a_baseline_without_any_turn_in_n_says_nothing():
    held = judge_regression(report([INFRASTRUCTURE]), report([made(1.0)]), FIVE)
    assert held.answer is Answer.UNKNOWN
    assert {drop.note for drop in held.drops} == {"no turn of the baseline is in N"}
