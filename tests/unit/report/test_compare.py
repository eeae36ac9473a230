"""Reports side by side: deltas, what is significant, what is told first."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.errors import InputError
from ptxbench.report import build_report
from ptxbench.report.compare import compare_reports
from ptxbench.report.compare_statistics import best_difference, rate_difference
from ptxbench.report.compare_text import render_comparison
from ptxbench.report.document import RunReport
from ptxbench.report.gates.measure import Trajectory
from tests.unit.report.reports import INFRASTRUCTURE, UNKNOWN, WRONG, key, made, partial, records, report

GOOD = [[made(1.0), made(0.9)]] * 6
HALF = [[made(1.0), WRONG]] * 6
BAD = [[WRONG, WRONG]] * 6


def deltas(before: RunReport, after: RunReport, most: Fraction = Fraction(5, 100)):
    (against,) = compare_reports({"a": before, "b": after}, most).against
    (cell,) = against.cells
    return {delta.metric: delta for delta in cell.deltas}


def test_a_fall_that_no_resample_explains_is_a_regression():
    found = deltas(report(*GOOD), report(*HALF))["correct"]
    assert (found.before, found.after, found.difference) == (1.0, 0.5, -0.5)
    assert (found.interval, found.change) == ((-0.5, -0.5), "regression")
    assert deltas(report(*HALF), report(*GOOD))["correct"].change == "improvement"


def test_a_fall_that_chance_explains_is_none():
    before, after = [*HALF[:3], *BAD[:3]], [*HALF[:2], *BAD[:4]]
    found = deltas(report(*before), report(*after))["correct"]
    assert found.interval is not None
    assert found.interval[0] < 0 < found.interval[1]
    assert found.change == "none"


def test_one_trajectory_has_no_interval_and_its_size_decides():
    found = deltas(report(GOOD[0]), report([made(0.94), made(0.9)]))
    assert (found["best_speedup"].interval, found["best_speedup"].change) == (None, "regression")
    assert deltas(report(GOOD[0]), report([made(0.96), made(0.9)]))["best_speedup"].change == "none"
    assert deltas(report(GOOD[0]), report(*GOOD))["correct"].interval is None


def test_a_small_fall_is_none_however_certain():
    after = report(*[[made(0.97), made(0.9)]] * 6)
    assert deltas(report(*GOOD), after)["best_speedup"].change == "none"
    assert deltas(report(*GOOD), after, Fraction(2, 100))["best_speedup"].change == "regression"


def test_unknown_turns_leave_a_fall_undecided():
    found = deltas(report(*GOOD), report(*[[made(1.0), UNKNOWN]] * 6))
    assert (found["correct"].change, found["correct"].after_at_most) == ("undecided", 1.0)
    assert deltas(report(*GOOD), report(*[[UNKNOWN, WRONG]] * 6))["correct"].change == "regression"
    assert deltas(report(*GOOD), report(*[[UNKNOWN, WRONG]] * 6))["best_speedup"].change == "undecided"


def test_what_is_gone_regressed():
    found = deltas(report(*GOOD), report(*BAD))
    assert {delta.change for name, delta in found.items() if not name.startswith("fast_p(1")} == {"regression"}
    assert found["best_speedup"].after is None


def test_a_fall_by_the_bound_itself_and_an_interval_that_touches_zero_are_none():
    right = [made(1.0)] * 20
    assert deltas(report(right), report([*right[:19], WRONG]))["correct"].change == "none"
    assert deltas(report(right), report([*right[:18], WRONG, WRONG]))["correct"].change == "regression"
    found = deltas(report(*GOOD[:2]), report(GOOD[0], HALF[0]))["correct"]
    assert (found.interval, found.change) == ((-0.5, 0.0), "none")


def test_every_threshold_is_compared_with_and_without_the_target():
    found = deltas(report(*GOOD), report(*GOOD))
    assert {f"fast_p({p}){inst}" for p in (0.5, 0.8, 1.0, 1.2) for inst in ("", ".inst")} < set(found)


def test_a_report_is_no_different_from_itself():
    assert {delta.change for delta in deltas(report(*HALF), report(*HALF)).values()} == {"none"}


def test_limits_are_what_both_gave():
    (against,) = compare_reports({"a": report(*GOOD), "b": report([made(1.0)], [made(1.0)])}).against
    assert against.cells[0].limit == 1
    assert against.count("regression") == 0


def test_reports_of_one_model_each_are_compared_whatever_the_names():
    (against,) = compare_reports({"a": report(*GOOD), "b": report(*BAD, model="gpt")}).against
    assert [(cell.before.model, cell.after.model) for cell in against.cells] == [("claude", "gpt")]


def test_regressions_come_first_and_lonely_cells_are_named():
    cases = ("gemm_n7168_k5120", "mha_with_lse_d128", "mha_bwd_d128")
    before = build_report([row for case in cases for row in records(GOOD, case=case)])
    after = build_report([*records(GOOD, case=cases[0]), *records(BAD, case=cases[1])])
    comparison = compare_reports({"monday": before, "tuesday": after, "again": before})
    tuesday, again = comparison.against
    assert [cell.before.case for cell in tuesday.cells] == [cases[1], cases[0]]
    assert [key.case for key in tuesday.only_before] == [cases[2]]
    assert comparison.regressed
    assert (tuesday.count("regression"), tuesday.count("undecided")) == (8, 1)
    assert not any(again.count(change) for change in ("regression", "undecided", "improvement"))
    lines = render_comparison(comparison, 80)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert text.index("mha_with_lse_d128 h100 at <=2") < text.index("gemm_n7168_k5120 h100 at <=2")
    assert "REGRESSION  correct" in text
    assert f"only in monday: claude {cases[2]} h100" in text


def test_what_differs_around_the_numbers_is_said():
    before = report(*GOOD)
    assert before.environment is not None
    device = before.environment.devices[0].model_copy(update={"driver": "570.1", "name": "NVIDIA H100"})
    after = before.model_copy(update={"environment": before.environment.model_copy(update={"devices": (device,)})})
    (cell,) = after.cells
    baseline = cell.baselines[0].model_copy(update={"version": "13.2"})
    after = after.model_copy(update={"cells": (cell.model_copy(update={"baselines": (baseline,)}),)})
    (against,) = compare_reports({"a": before, "b": after}).against
    assert [difference.text(("a", "b")) for difference in against.warnings] == [
        "device differs: a: NVIDIA H200; b: NVIDIA H100",
        "driver differs: a: 580.159; b: 570.1",
        "baseline library differs: a: cublas 13.1.0 (torch.matmul); b: cublas 13.2 (torch.matmul)",
    ]


def test_a_report_of_version_1_does_not_say_its_driver():
    old = report(*GOOD).model_copy(update={"environment": None, "schema_version": 1})
    (against,) = compare_reports({"a": old, "b": report(*GOOD)}).against
    assert [difference.text(("a", "b")) for difference in against.warnings] == [
        "driver differs: a: not said; b: 580.159"
    ]


def test_one_report_is_not_enough():
    with pytest.raises(InputError, match="expected two reports or more to compare, found 1"):
        compare_reports({"a": report(*GOOD)})


rows = st.lists(
    st.builds(
        lambda hits, more, best: Trajectory(hits, hits + more, best),
        st.integers(0, 4),
        st.integers(0, 4),
        st.none() | st.floats(0.1, 2.0),
    ),
    min_size=2,
    max_size=5,
)


@settings(max_examples=30)
@given(rows, rows)
def test_intervals_are_ordered_within_what_is_possible_and_the_same_every_time(before, after):
    for difference, bound in ((rate_difference, 1.0), (best_difference, 2.0)):
        found = difference(before, after)
        assert found == difference(before, after)
        if found is not None:
            assert -bound <= found.low <= found.high <= bound


@settings(max_examples=30)
@given(rows)
def test_a_side_against_itself_holds_zero(side):
    for difference in (rate_difference, best_difference):
        found = difference(side, side)
        assert found is None or found.low <= 0 <= found.high


def test_nothing_compared_is_not_kept():
    other = build_report(records(GOOD, case="mha_bwd_d128"))
    for before, after in ((report(*GOOD), other), (report(*GOOD), build_report([])), (build_report([]),) * 2):
        comparison = compare_reports({"a": before, "b": after})
        assert comparison.against[0].cells == ()
        assert "WARNING: no cell is in both, so nothing was compared" in render_comparison(comparison, 100)
        assert comparison.regressed


def test_cells_that_are_gone_are_undecided_and_new_ones_are_not():
    both = build_report([*records(GOOD), *records(GOOD, case="mha_bwd_d128")])
    one = report(*GOOD)
    gone = compare_reports({"a": both, "b": one})
    assert (gone.against[0].count("undecided"), gone.regressed) == (1, True)
    assert "b against a: 1 cell, 0 regressions, 1 undecided, 0 improvements" in render_comparison(gone, 100)
    more = compare_reports({"a": one, "b": both})
    assert not more.regressed
    assert [key.case for key in more.against[0].only_after] == ["mha_bwd_d128"]


def test_turns_left_out_of_the_later_report_are_unknown_in_it():
    whole = report(*[[made(1.0)] * 4] * 3)
    spent = partial(*[[made(1.0)] * 2] * 3, turns=4)
    found = deltas(whole, spent)["correct"]
    assert (found.before, found.after, found.after_at_most, found.unknown_after) == (1.0, 0.5, 1.0, 6)
    assert found.change == "undecided"
    # What the earlier one had is over its own N.
    assert deltas(spent, report(*[[made(1.0), made(1.0), WRONG, WRONG]] * 3))["correct"].change == "regression"
    assert deltas(whole, report(*[[made(1.0), *[INFRASTRUCTURE] * 3]] * 3))["correct"].change == "undecided"
    unselected = [key(trajectory, turn) for trajectory in range(3) for turn in (1, 2, 3)]
    some = partial(*[[made(1.0)]] * 3, turns=4, reason="", unselected=unselected)
    assert deltas(whole, some)["correct"].change == "undecided"


def test_an_empty_n_decides_nothing():
    nobody = report(*[[INFRASTRUCTURE] * 2] * 6)
    assert deltas(nobody, report(*GOOD))["correct"].change == "undecided"
    assert deltas(report(*GOOD), nobody)["correct"].change == "undecided"
