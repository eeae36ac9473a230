"""Values of metrics from turns: those of the metrics' own module, with the unknowns beside them."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.records import Outcome, Target, Verdict
from ptxbench.report.gates import Metric
from ptxbench.report.gates.measure import Best, Tally, Trajectory, cells_of, selected
from ptxbench.report.terminal import best_text
from ptxbench.verdict.metrics import FAST_P
from tests.unit.report.reports import INFRASTRUCTURE, UNKNOWN, WRONG, made, report


def judged(outcome: Outcome, target: Target, speedup: float) -> Verdict:
    if outcome is Outcome.UNKNOWN and target is Target.EXECUTED:
        target = Target.UNKNOWN  # what nobody ran, nobody saw execute
    if speedup < 0.3:  # nobody timed it
        return made(outcome=outcome, target=target, measured=False)
    return made(speedup if outcome is Outcome.CORRECT else None, outcome=outcome, target=target)


outcomes = st.sampled_from([Outcome.CORRECT] * 3 + [Outcome.NUMERICAL_ERROR, Outcome.UNKNOWN])
verdicts: st.SearchStrategy[Verdict] = st.just(INFRASTRUCTURE) | st.builds(
    judged, outcomes, st.sampled_from(Target), st.floats(0.1, 1.19)
)
cells = st.lists(st.lists(verdicts, min_size=1, max_size=5), min_size=1, max_size=3)


@settings(max_examples=60)
@given(cells)
def test_over_a_cell_they_are_the_reports_own(trajectories):
    made_report = report(*trajectories)
    (found,) = cells_of(made_report)
    for at in found.cell.limits:
        rates = {Metric("correct"): at.correct, Metric("correct", inst=True): at.target, Metric("target"): at.target}
        for fast in at.fast_p:
            rates[Metric("fast_p", Decimal(str(fast.p)))] = fast.any
            rates[Metric("fast_p", Decimal(str(fast.p)), inst=True)] = fast.inst
        for metric, rate in rates.items():
            assert found.tally(metric, at.limit) == Tally(rate.hits, rate.turns, rate.unknown), metric
            every = found.tally(metric, at.limit, "all")
            assert every.hits == rate.hits
            assert every.turns == found.cell.trajectories * at.limit
            assert every.unknown - rate.unknown == every.turns - rate.turns
            parts = found.trajectories(metric, at.limit)
            assert len(parts) == found.cell.trajectories
            assert (sum(part.hits for part in parts), sum(part.turns for part in parts)) == (rate.hits, rate.turns)
        assert found.best(Metric("best_speedup"), at.limit).speedup == at.best_speedup
        assert found.best(Metric("best_speedup", inst=True), at.limit).speedup == at.target_best_speedup
        for inst in (False, True):
            best = found.best(Metric("best_speedup", inst=inst), at.limit)
            nothing = at.correct.turns == 0
            assert (best_text(at, inst=inst) == "?") is (best.speedup is None and (best.unknown > 0 or nothing))
    assert len(made_report.cells[0].limits[0].fast_p) == len(FAST_P)


@settings(max_examples=60)
@given(cells, st.decimals(0, 2, places=2), st.decimals(0, 2, places=2))
def test_a_higher_threshold_and_the_target_keep_fewer_turns(trajectories, p, more):
    (found,) = cells_of(report(*trajectories))
    low, high = found.tally(Metric("fast_p", p), found.given), found.tally(Metric("fast_p", p + more), found.given)
    assert high.hits <= low.hits
    assert found.tally(Metric("fast_p", p, inst=True), found.given).hits <= low.hits
    assert low.low <= low.high or low.turns == 0


def test_what_nobody_timed_is_unknown_and_what_is_withheld_is_not():
    (found,) = cells_of(report([made(0.9), made(measured=False), made(), WRONG, UNKNOWN, INFRASTRUCTURE]))
    assert found.tally(Metric("fast_p", Decimal("0.8")), 6) == Tally(1, 5, 2)
    assert found.best(Metric("best_speedup"), 6) == Best(0.9, 2)
    assert found.best(Metric("best_speedup"), 1) == Best(0.9, 0)


def test_planned_trajectories_without_a_turn_count():
    (found,) = cells_of(report([made(0.9)], [], turns=2))
    assert found.tally(Metric("correct"), 2) == Tally(1, 4, 0)
    assert found.trajectories(Metric("correct"), 2) == [Trajectory(1, 2, 0.9), Trajectory(0, 2, None)]


def test_an_empty_n_is_anything():
    assert (Tally(0, 0, 0).low, Tally(0, 0, 0).high) == (Fraction(0), Fraction(1))


@pytest.mark.parametrize(
    ("metric", "through"),
    [
        (Metric("correct"), True),
        (Metric("correct", model=("cl*",), case=("*k51?0",), arch=("h[12]00",)), True),
        (Metric("correct", model=("gpt", "claude")), True),
        (Metric("correct", model=("Claude",)), False),
        (Metric("correct", case=("gemm",)), False),
    ],
)
def test_filters_are_globs(metric, through):
    assert bool(selected(metric, cells_of(report([WRONG])))) is through
