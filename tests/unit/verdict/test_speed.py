from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.records import Disturbance, DisturbanceKind, Verdict
from ptxbench.verdict import Flag, judge
from ptxbench.verdict.speed import CLOCK_SLACK_NS, median_over_trials, physical_floor_ns
from tests.unit.factories import (
    BASELINE_NS,
    DEVICE,
    OVERHEAD_NS,
    SPAN_NS,
    make_baseline,
    make_build,
    make_call,
    make_evidence,
    make_run,
    make_timing,
    make_trial,
    suite_case,
)

FLOOR_NS = 8192 * 7168 * 5120 * 2 / (132 * 4096 * 1.98)


def timed(*timings: Any, **run: Any) -> Verdict:
    trials = tuple(make_trial(timing=timing) for timing in timings)
    verdict = judge(suite_case(), make_build(), make_evidence(run=make_run(trials=trials, **run)))
    assert verdict.correct
    return verdict


def test_median_of_trial_medians_shrugs_off_one_disturbed_trial() -> None:
    verdict = timed(make_timing(800_000), make_timing(2_000_000), make_timing(802_000))
    assert verdict.latency_ms == 0.802


def test_samples_within_a_trial_are_reduced_by_the_median() -> None:
    spans = (700_000,) * 24 + (800_000,) * 2 + (5_000_000,) * 24
    timing = make_timing(span_ns=0).model_copy(
        update={"span_ns": spans, "wall_ns": tuple(span + 110_000 for span in spans)}
    )
    assert timed(timing, timing, timing).latency_ms == 0.8


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=9), min_size=1, max_size=5))
def test_median_over_trials_lies_within_the_samples(trials: list[list[int]]) -> None:
    samples = [sample for trial in trials for sample in trial]
    assert min(samples) <= median_over_trials(trials) <= max(samples)
    assert median_over_trials(trials) == median_over_trials([sorted(trial, reverse=True) for trial in trials[::-1]])


@pytest.mark.parametrize("excess", [-50_000, 0, CLOCK_SLACK_NS])
def test_host_jitter_within_the_slack_leaves_cupti(excess: int) -> None:
    verdict = timed(*[make_timing(excess_ns=excess)] * 3)
    assert (verdict.latency_source, verdict.latency_ms, verdict.flags) == ("cupti", 0.8, ())


def test_time_that_the_span_does_not_hold_is_charged() -> None:
    verdict = timed(*[make_timing(excess_ns=CLOCK_SLACK_NS + 1)] * 3)
    assert (verdict.latency_source, verdict.latency_ms) == ("oracle_clock", 0.900001)
    assert verdict.speedup == pytest.approx(BASELINE_NS / 900_001)
    assert verdict.flags == (Flag.CLOCK_DISAGREEMENT,)


def test_what_the_library_itself_costs_the_clock_is_not_held_against_a_candidate() -> None:
    baseline = make_baseline(excess_ns=150_000, span_ns=(4_000_000,) * 150)
    within, beyond = (make_timing(4_000_000, excess_ns=150_000 + more) for more in (0, 1))
    assert timed(within, within, within, baseline=baseline).latency_source == "cupti"
    assert timed(beyond, beyond, beyond, baseline=baseline).latency_source == "oracle_clock"


def test_a_disturbed_measurement_of_the_library_does_not_open_the_door() -> None:
    timing = make_timing(excess_ns=CLOCK_SLACK_NS + 1)
    assert timed(timing, timing, timing, baseline=make_baseline(excess_ns=10**9)).latency_source == "oracle_clock"
    long = make_baseline(excess_ns=10**9, span_ns=(4_000_000,) * 150)  # of which 5% are 200 us
    within, beyond = (make_timing(4_000_000, excess_ns=200_000 + more) for more in (0, 1))
    assert timed(within, within, within, baseline=long).latency_source == "cupti"
    assert timed(beyond, beyond, beyond, baseline=long).latency_source == "oracle_clock"


def test_an_empty_call_that_the_host_held_up_does_not_open_the_door() -> None:
    """The hand-over is measured once for a workload's state: the library's own calls, which hand over too, bound it."""
    forged = make_timing(200_000, excess_ns=600_000)
    held_up = make_baseline(overhead_ns=OVERHEAD_NS + 1_000_000, excess_ns=-1_000_000)
    verdict = timed(forged, forged, forged, baseline=held_up)
    assert (verdict.latency_ms, verdict.latency_source) == (0.7, "oracle_clock")
    unknown = make_baseline(overhead_ns=OVERHEAD_NS + 1_000_000)
    assert timed(forged, forged, forged, baseline=unknown).latency_source == "cupti"


def test_a_quick_library_does_not_narrow_the_slack() -> None:
    timing = make_timing(excess_ns=CLOCK_SLACK_NS)
    assert timed(timing, timing, timing, baseline=make_baseline(excess_ns=-20_000)).latency_source == "cupti"


def test_a_span_forged_in_one_trial_pays_in_none() -> None:
    forged = make_timing(600_000, excess_ns=200_000)
    assert timed(forged, make_timing(), make_timing()).latency_ms == 0.8
    assert timed(forged, forged, make_timing()).latency_ms == 0.8
    assert timed(forged, forged, forged).latency_ms == 0.8


def test_one_trial_that_the_host_held_up_charges_nobody() -> None:
    held_up, calm = make_timing(excess_ns=5_000_000), make_timing()
    verdict = timed(calm, held_up, calm)
    assert (verdict.latency_source, verdict.latency_ms, verdict.flags) == ("cupti", 0.8, ())
    verdict = timed(calm, held_up, held_up)
    assert (verdict.latency_source, verdict.latency_ms) == ("oracle_clock", 5.8)
    assert verdict.flags == (Flag.CLOCK_DISAGREEMENT,)


def test_a_charged_trial_that_is_the_median_names_its_clock() -> None:
    held_up, noisy = make_timing(800_000, excess_ns=200_000), make_timing(1_200_000)
    verdict = timed(make_timing(), held_up, noisy)
    assert (verdict.latency_ms, verdict.latency_source, verdict.flags) == (
        1.0,
        "oracle_clock",
        (Flag.CLOCK_DISAGREEMENT,),
    )


def test_of_an_even_number_of_trials_either_of_the_middle_two_may_name_the_clock() -> None:
    held_up, noisy = make_timing(800_000, excess_ns=200_000), make_timing(1_200_000)
    verdict = timed(make_timing(), make_timing(), held_up, noisy)
    assert (verdict.latency_ms, verdict.latency_source) == (0.9, "oracle_clock")


def test_half_of_the_trials_are_enough_to_charge() -> None:
    """Also where the two that the median is read from are the other half."""
    quick, held_up, calm = make_timing(300_000, excess_ns=200_000), make_timing(excess_ns=5_000_000), make_timing()
    verdict = timed(quick, calm, calm, held_up)
    assert (verdict.latency_ms, verdict.latency_source) == (0.8, "oracle_clock")
    assert timed(quick, calm, calm, calm, held_up).latency_source == "cupti"


def test_a_trial_between_two_charged_ones_is_no_measure_of_the_clock() -> None:
    below, above = make_timing(500_000, excess_ns=200_000), make_timing(900_000, excess_ns=600_000)
    verdict = timed(below, make_timing(), above)
    assert (verdict.latency_ms, verdict.latency_source) == (0.8, "oracle_clock")


def test_a_charged_trial_beside_two_others_counts_as_the_slower_of_them_at_most() -> None:
    fast, slow = make_timing(800_000), make_timing(810_000)
    verdict = timed(make_timing(790_000, excess_ns=5_000_000), fast, slow)
    assert (verdict.latency_ms, verdict.latency_source, verdict.flags) == (0.81, "cupti", ())


def test_the_oracle_clock_never_makes_a_candidate_faster() -> None:
    slow, forged = make_timing(900_000, excess_ns=-300_000), make_timing(100_000, excess_ns=200_000)
    assert timed(slow, slow, forged).latency_ms == 0.9


def test_long_kernels_have_three_percent_of_slack() -> None:
    span = 50_000_000
    assert timed(*[make_timing(span, excess_ns=span * 3 // 100)] * 3).latency_source == "cupti"
    assert timed(*[make_timing(span, excess_ns=span * 3 // 100 + 1)] * 3).latency_source == "oracle_clock"


@pytest.mark.parametrize("drift_ns", [BASELINE_NS * 91 // 100, BASELINE_NS, BASELINE_NS * 109 // 100])
def test_drift_within_the_bound_keeps_the_stored_baseline(drift_ns: int) -> None:
    verdict = timed(*[make_timing()] * 3, baseline=make_baseline(drift_span_ns=(drift_ns,) * 5))
    assert (verdict.baseline_ms, verdict.flags) == (BASELINE_NS / 1e6, ())


@pytest.mark.parametrize(("drift_ns", "denominator_ns"), [(660_000, 660_000), (820_000, BASELINE_NS)])
def test_drift_beyond_it_takes_the_faster_baseline(drift_ns: int, denominator_ns: int) -> None:
    verdict = timed(*[make_timing()] * 3, baseline=make_baseline(drift_span_ns=(drift_ns,) * 5))
    assert verdict.baseline_ms == denominator_ns / 1e6
    assert verdict.speedup == denominator_ns / SPAN_NS
    assert verdict.flags == (Flag.BASELINE_DRIFT,)


def test_without_a_retiming_the_stored_baseline_stands() -> None:
    assert timed(*[make_timing()] * 3, baseline=make_baseline(drift_span_ns=())).flags == ()


@pytest.mark.parametrize("baseline", [None, make_baseline(span_ns=())])
def test_no_baseline_no_speedup(baseline: Any) -> None:
    verdict = timed(*[make_timing()] * 3, baseline=baseline)
    assert (verdict.latency_ms, verdict.baseline_ms, verdict.speedup) == (0.8, None, None)
    assert verdict.flags == (Flag.NO_BASELINE,)


@pytest.mark.parametrize(
    "timing",
    [
        None,
        make_timing(count=49),
        make_timing(warmup=9),
        make_timing().model_copy(update={"wall_ns": (1_000_000,) * 49}),
    ],
)
def test_incomplete_timing_gives_no_latency(timing: Any) -> None:
    verdict = timed(make_timing(), timing, make_timing())
    assert (verdict.latency_ms, verdict.latency_source, verdict.speedup) == (None, None, None)
    assert verdict.flags == (Flag.TIMING_INCOMPLETE,)


def test_a_timed_loop_that_nobody_looked_into_scores_nothing() -> None:
    trials = (make_trial(checks=(make_call(),)),) * 3
    verdict = judge(suite_case(), make_build(), make_evidence(run=make_run(trials=trials)))
    assert verdict.correct
    assert (verdict.latency_ms, verdict.speedup, verdict.flags) == (0.8, None, (Flag.TIMING_UNCHECKED,))


def test_work_outside_every_call_scores_nothing() -> None:
    verdict = timed(make_timing(), make_timing(stray=1), make_timing())
    assert (verdict.latency_ms, verdict.speedup, verdict.flags) == (0.8, None, (Flag.STRAY_ACTIVITY,))


def test_floor_is_the_larger_of_compute_and_memory() -> None:
    case = suite_case()
    assert physical_floor_ns(case, DEVICE) == pytest.approx(FLOOR_NS)
    slow_memory = DEVICE.model_copy(update={"memory_bandwidth_bytes_per_s": 10**11})
    moved = 2 * (8192 * 5120 + 7168 * 5120 + 8192 * 7168)
    assert physical_floor_ns(case, slow_memory) == pytest.approx(moved / 100)
    untold = DEVICE.model_copy(update={"memory_bandwidth_bytes_per_s": 0, "max_sm_clock_mhz": 0})
    assert physical_floor_ns(case, untold) == 0


def test_below_the_floor_is_implausible() -> None:
    below, above = timed(*[make_timing(int(FLOOR_NS))] * 3), timed(*[make_timing(int(FLOOR_NS) + 1)] * 3)
    assert (below.speedup, below.roofline_share, below.flags) == (None, None, (Flag.IMPLAUSIBLE,))
    assert below.latency_ms is not None
    assert above.flags == ()
    assert above.roofline_share == pytest.approx(1.0, abs=1e-5)


def test_no_time_at_all_is_implausible_or_charged() -> None:
    nothing = make_timing(0)
    assert timed(nothing, nothing, nothing).flags == (Flag.IMPLAUSIBLE,)
    untold = DEVICE.model_copy(update={"memory_bandwidth_bytes_per_s": 0, "max_sm_clock_mhz": 0})
    run = make_run(trials=(make_trial(timing=nothing),) * 3)
    assert judge(suite_case(), make_build(), make_evidence(run=run, device=untold)).flags == (Flag.IMPLAUSIBLE,)
    hidden = make_timing(0, excess_ns=900_000)
    assert timed(hidden, hidden, hidden).latency_ms == 0.9


def test_roofline_share_of_an_honest_kernel() -> None:
    assert timed(*[make_timing()] * 3).roofline_share == pytest.approx(FLOOR_NS / SPAN_NS)


def test_latency_and_baseline_have_intervals_of_their_medians() -> None:
    spans = tuple(range(700_000, 700_000 + 50_000, 1_000))
    timing = make_timing().model_copy(update={"span_ns": spans, "wall_ns": tuple(span + 110_000 for span in spans)})
    verdict = timed(timing, timing, timing, baseline=make_baseline(span_ns=tuple(range(740_000, 740_150))))
    # Of 150 samples the 63rd and the 88th; here every value comes three times.
    assert verdict.latency_interval_ms == (0.720, 0.729)
    assert verdict.baseline_interval_ms == pytest.approx((0.740062, 0.740087))
    assert verdict.latency_ms == 0.7245


def test_the_interval_is_of_the_clock_that_was_believed() -> None:
    hidden = make_timing(excess_ns=900_000)
    verdict = timed(hidden, hidden, hidden)
    assert (verdict.latency_source, verdict.latency_interval_ms) == ("oracle_clock", (1.7, 1.7))


def test_too_few_samples_have_no_interval() -> None:
    verdict = timed(*[make_timing()] * 3, baseline=make_baseline(span_ns=(BASELINE_NS,) * 5))
    assert verdict.baseline_interval_ms is None
    assert verdict.latency_interval_ms == (0.8, 0.8)


@pytest.mark.parametrize("kind", DisturbanceKind)
def test_a_disturbed_evaluation_shows_its_latency_and_has_no_speedup(kind: DisturbanceKind) -> None:
    found = Disturbance(kind=kind, message="seen", when="during")
    verdict = timed(*[make_timing()] * 3, disturbances=(found,))
    withheld = kind in (DisturbanceKind.THROTTLED, DisturbanceKind.FOREIGN_PROCESS, DisturbanceKind.ECC)
    assert (verdict.latency_ms, verdict.speedup is None) == (0.8, withheld)
    assert verdict.flags == ((Flag.DISTURBED,) if withheld else ())
