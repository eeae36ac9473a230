import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Disturbance, DisturbanceKind
from ptxbench.report.turn_rows import Work, summary_of, turn_row
from tests.unit.factories import (
    BASELINE_NS,
    OVERHEAD_NS,
    SPAN_NS,
    make_evidence,
    make_record,
    make_run,
    make_timing,
    make_trial,
    suite_case,
)

WORK = Work.of(suite_case())


def test_a_measured_turn_has_samples_instructions_and_roofline() -> None:
    row = turn_row(make_record(), WORK)
    assert row.samples is not None
    assert row.samples.count == 150
    assert row.samples.trial_medians_ms == (SPAN_NS / 1e6,) * 3
    assert statistics.median(row.samples.trial_medians_ms) == row.verdict.latency_ms
    assert row.instructions is not None
    assert row.instructions.static["HGMMA"] == 8
    assert row.instructions.executed == {"HGMMA": 32_000}
    assert row.roofline is not None
    assert row.roofline.tflops == pytest.approx(WORK.flops / SPAN_NS / 1e3)
    assert row.roofline.peak_tflops == pytest.approx(132 * 4096 * 1980e6 / 1e12)
    assert row.verdict.roofline_share == pytest.approx(row.roofline.tflops / (row.roofline.peak_tflops or 0))
    assert row.verdict.speedup == pytest.approx(BASELINE_NS / SPAN_NS)


def test_samples_are_of_the_clock_that_the_judge_believed() -> None:
    trial = make_trial(timing=make_timing(excess_ns=1_000_000))
    record = make_record(evidence=make_evidence(run=make_run(trials=(trial,) * 3)))
    assert record.verdict.latency_source == "oracle_clock"
    samples = turn_row(record, None).samples
    assert samples is not None
    assert samples.median_ms == pytest.approx((SPAN_NS + OVERHEAD_NS + 1_000_000 - OVERHEAD_NS) / 1e6)


@pytest.mark.parametrize("held_up", [1, 2])
def test_samples_are_of_the_clock_that_is_believed_in_their_trial(held_up: int) -> None:
    timings = [make_timing(790_000, excess_ns=1_000_000)] * held_up + [
        make_timing(ns, excess_ns=50_000) for ns in (800_000, 810_000)
    ]
    trials = tuple(make_trial(timing=timing) for timing in timings[:3])
    record = make_record(evidence=make_evidence(run=make_run(trials=trials)))
    samples = turn_row(record, None).samples
    assert samples is not None
    assert samples.trial_medians_ms == (1.79,) * held_up + (0.8, 0.81)[: 3 - held_up]
    assert statistics.median(samples.trial_medians_ms) == record.verdict.latency_ms


def test_what_is_not_known_is_left_out() -> None:
    row = turn_row(make_record(evidence=None), None)
    assert (row.samples, row.roofline) == (None, None)
    assert row.instructions is not None
    assert row.instructions.executed is None
    assert turn_row(make_record(), None).roofline is None


def test_an_operator_without_claimed_flops_has_no_roofline() -> None:
    row = turn_row(make_record(), WORK._replace(flops=0))
    assert row.roofline is None
    assert row.samples is not None


@given(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=60))
def test_samples_are_in_order(values: list[float]) -> None:
    found = summary_of([values])
    assert found is not None
    ordered = [found.min_ms, found.q1_ms, found.median_ms, found.q3_ms, found.max_ms]
    assert ordered == sorted(ordered)
    assert found.min_ms <= found.whisker_low_ms <= found.whisker_high_ms <= found.max_ms
    assert 0 <= found.outliers < found.count == len(values)
    expected = statistics.stdev(values) if len(values) > 1 else 0.0
    assert found.stddev_ms == pytest.approx(expected, abs=1e-9)


def test_an_outlier_is_beyond_the_whiskers() -> None:
    found = summary_of([[1.0, 1.1, 1.2, 1.3, 9.0]])
    assert found is not None
    assert (found.outliers, found.whisker_high_ms, found.max_ms) == (1, 1.3, 9.0)
    assert summary_of([[]]) is None


def test_disturbances_are_told() -> None:
    found = Disturbance(kind=DisturbanceKind.CLOCK_CHANGED, message="1500 to 1980 MHz", when="during")
    evidence = make_evidence(run=make_run(disturbances=(found,)))
    assert turn_row(make_record(evidence=evidence), None).disturbances == (found,)
    assert turn_row(make_record(evidence=None), None).disturbances == ()
