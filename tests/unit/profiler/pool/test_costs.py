from __future__ import annotations

import pytest

from ptxbench.profiler.pool.costs import EXPECTED_BUILD_S, EXPECTED_S, Costs


def test_before_anything_was_measured_the_figures_of_the_document_hold():
    costs = Costs()
    assert (costs.duration("sanitize", "a"), costs.build("a")) == (EXPECTED_S["sanitize"], EXPECTED_BUILD_S)


def test_medians_of_what_was_measured_and_of_others_where_a_state_is_new():
    costs = Costs()
    for seconds in (1.0, 2.0, 60.0):
        costs.learn("evaluate", "a", seconds, built=False)
    assert costs.duration("evaluate", "a") == 2.0
    assert costs.duration("evaluate", "b") == 2.0
    costs.learn("evaluate", "c", 4.0, built=False)
    assert costs.duration("evaluate", "b") == 3.0
    assert costs.duration("instructions", "a") == EXPECTED_S["instructions"]


def test_what_building_takes_is_told_apart_by_the_next_operation():
    costs = Costs()
    costs.learn("evaluate", "a", 5.0, built=True)
    assert costs.build("a") == EXPECTED_BUILD_S
    costs.learn("evaluate", "a", 1.5, built=False)
    assert costs.build("a") == pytest.approx(3.5)
    costs.learn("evaluate", "a", 8.5, built=True)
    assert costs.build("a") == pytest.approx((3.5 + 7.0) / 2)
    assert costs.build("b") == costs.build("a")
    costs.learn("evaluate", "a", 0.5, built=True)
    assert costs.build("a") == pytest.approx(3.5), "never less than nothing"


def test_what_lies_long_back_is_forgotten():
    costs = Costs()
    for _ in range(20):
        costs.learn("evaluate", "a", 1.0, built=False)
    for _ in range(5):
        costs.learn("evaluate", "a", 2.0, built=False)
    assert costs.duration("evaluate", "a") == 2.0
