"""Latency, clocks, drift, physics and speedup of a correct turn.

Times are nanoseconds inside, milliseconds in the result. The reasons behind each bound are in docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

from ptxbench.cases.case import Case
from ptxbench.records import CORRECTNESS_CALL, BaselineMeasurement, DeviceIdentity, Evidence, Timing
from ptxbench.verdict.intervals import Interval
from ptxbench.verdict.order_statistics import median_interval
from ptxbench.verdict.rules import Flag

NS_PER_MS = 1e6

CLOCK_SLACK_NS = 100_000
"""Median excess of the oracle's clock over the reported span that host jitter explains."""
CLOCK_SLACK_SHARE = 0.03
"""The same as a share of the span, for long kernels."""
CLOCK_SLACK_BASELINE_SHARE = 0.05
"""The library's own excess counts up to this share of its latency."""

Clock = Literal["cupti", "oracle_clock"]


class Speed(NamedTuple):
    """What the timings of a correct turn say. None where they say nothing."""

    latency_ms: float | None = None
    source: Clock | None = None
    baseline_ms: float | None = None
    latency_interval_ms: tuple[float, float] | None = None
    baseline_interval_ms: tuple[float, float] | None = None
    speedup: float | None = None
    roofline_share: float | None = None
    flags: tuple[Flag, ...] = ()


class _Latency(NamedTuple):
    """A latency in ns, the clock that it was read from and its interval."""

    ns: float
    source: Clock
    interval_ns: Interval | None = None


def judge_speed(case: Case, evidence: Evidence, beside: tuple[Flag, ...] = ()) -> Speed:
    """Return the speed of a turn whose outcome is correct. Flags say why a speedup is withheld.

    ``beside`` are flags that are known of its results; they come back with the others.
    """
    flags: list[Flag] = [*beside]
    timings = _complete_timings(case, evidence)
    baseline = evidence.run.baseline
    library = _library(baseline, flags)
    baseline_ms = None if library is None else library.ns / NS_PER_MS
    baseline_interval_ms = None if library is None else _milliseconds(library.interval_ns)
    if timings is None:
        flags.append(Flag.TIMING_INCOMPLETE)
        return Speed(baseline_ms=baseline_ms, baseline_interval_ms=baseline_interval_ms, flags=tuple(flags))
    latency = _latency(timings, baseline)
    if latency.source == "oracle_clock":
        flags.append(Flag.CLOCK_DISAGREEMENT)
    if any(timing.stray > 0 for timing in timings):
        flags.append(Flag.STRAY_ACTIVITY)
    if not _any_timed_call_checked(evidence):
        flags.append(Flag.TIMING_UNCHECKED)
    if any(disturbance.disturbing for disturbance in evidence.run.disturbances):
        flags.append(Flag.DISTURBED)
    # Seen from inside of the candidate's process as well, so a candidate could be why nothing was.
    if evidence.run.loaded is not None and evidence.run.loaded.unknown:
        flags.append(Flag.LOADED_CODE_UNKNOWN)
    floor_ns = physical_floor_ns(case, evidence.device)
    if latency.ns < floor_ns or latency.ns <= 0:
        flags.append(Flag.IMPLAUSIBLE)
    return Speed(
        latency_ms=latency.ns / NS_PER_MS,
        source=latency.source,
        baseline_ms=baseline_ms,
        latency_interval_ms=_milliseconds(latency.interval_ns),
        baseline_interval_ms=baseline_interval_ms,
        speedup=None if library is None or WITHHOLDING & set(flags) else library.ns / latency.ns,
        roofline_share=None if Flag.IMPLAUSIBLE in flags or floor_ns == 0 else floor_ns / latency.ns,
        flags=tuple(flags),
    )


WITHHOLDING = {
    Flag.DISTURBED,
    Flag.FAMILY_MISMATCH,
    Flag.IMPLAUSIBLE,
    Flag.LOADED_CODE_UNKNOWN,
    Flag.LOW_PRECISION,
    Flag.STRAY_ACTIVITY,
    Flag.TIMING_UNCHECKED,
}
"""Flags under which a latency is shown and never scored."""


def _complete_timings(case: Case, evidence: Evidence) -> list[Timing] | None:
    timings = [trial.timing for trial in evidence.run.trials if trial.timing is not None]
    complete = len(timings) == len(evidence.run.trials) and all(
        len(timing.span_ns) == len(timing.wall_ns) == case.iterations and timing.warmup >= case.warmup
        for timing in timings
    )
    return timings if complete and timings else None


def _any_timed_call_checked(evidence: Evidence) -> bool:
    """Whether the timed loop was looked into: a candidate that cannot know where must compute in every call."""
    return any(call.iteration != CORRECTNESS_CALL for trial in evidence.run.trials for call in trial.checks)


def median_over_trials(trials: Sequence[Sequence[float]]) -> float:
    """Return the median of the trials' medians.

    The paper gives the median within a trial and does not say how trials combine. The median lets one disturbed trial
    of three change nothing, where a mean would pass a third of the disturbance on.
    """
    return median(median(trial) for trial in trials)


def _latency(timings: list[Timing], baseline: BaselineMeasurement | None) -> _Latency:
    """Return the latency, trial by trial by CUPTI or, where the two disagree, by the oracle's clock.

    The sandbox that reports the span also runs the candidate, so a span is believed only as far as the clock outside
    confirms it. One trial of three that something else on the host held up for long costs at most the difference
    between the other two: the median is the slower of them. Without a baseline the hand-over's cost is unknown and
    nothing can be confirmed: no speedup then.
    """
    reported = _latency_of([timing.span_ns for timing in timings], "cupti")
    doubted = _doubted(timings, baseline)
    if not any(doubted):
        return reported
    trials = believed_ns(timings, baseline)
    charged = 2 * sum(doubted) >= len(doubted) or _median_is_doubted(trials, doubted)
    # The correction may not make a candidate faster than it reports itself.
    return _latency_of(trials, "oracle_clock" if charged else "cupti", at_least_ns=reported.ns)


def believed_ns(timings: Sequence[Timing], baseline: BaselineMeasurement | None) -> list[Sequence[int]]:
    """Return the iterations of each trial, in ns, by the clock that is believed in it."""
    return [
        [wall - _hand_over_ns(baseline) for wall in timing.wall_ns]
        if doubt and baseline is not None
        else timing.span_ns
        for timing, doubt in zip(timings, _doubted(timings, baseline), strict=True)
    ]


def _doubted(timings: Sequence[Timing], baseline: BaselineMeasurement | None) -> list[bool]:
    return [baseline is not None and _disagrees(timing, baseline) for timing in timings]


def _median_is_doubted(trials: Sequence[Sequence[int]], doubted: Sequence[bool]) -> bool:
    """Whether the oracle's clock gave the trial, or one of the two, that the median over trials is read from."""
    order = sorted(range(len(trials)), key=lambda trial: median(trials[trial]))
    return doubted[order[(len(order) - 1) // 2]] or doubted[order[len(order) // 2]]


def _latency_of(trials: Sequence[Sequence[float]], source: Clock, at_least_ns: float = 0) -> _Latency:
    ns = max(median_over_trials(trials), at_least_ns)
    return _Latency(ns, source, median_interval([sample for trial in trials for sample in trial], ns))


def _milliseconds(interval_ns: Interval | None) -> tuple[float, float] | None:
    # Time by the oracle's clock less the hand-over may come out below zero for a call that does nothing.
    return None if interval_ns is None else (max(0.0, interval_ns.low) / NS_PER_MS, interval_ns.high / NS_PER_MS)


def _disagrees(timing: Timing, baseline: BaselineMeasurement) -> bool:
    beyond = [wall - span for wall, span in zip(timing.wall_ns, timing.span_ns, strict=True)]
    # The library's own calls nobody suspects: a workload of many large tensors costs more to switch to than an empty
    # call, whoever's kernel runs. Bounded, since one disturbed measurement must not open the door.
    excess = min(baseline.excess_ns or 0, CLOCK_SLACK_BASELINE_SHARE * median(baseline.span_ns or (0,)))
    slack = max(
        CLOCK_SLACK_NS,
        CLOCK_SLACK_SHARE * median(timing.span_ns),
        excess,
    )
    return median(beyond) - _hand_over_ns(baseline) > slack


def _hand_over_ns(baseline: BaselineMeasurement) -> int:
    """Return what handing over costs the oracle's clock, by an empty call and, but for jitter, by the library's.

    The empty call is measured once for all candidates of a workload's state. If the host held it up, the library's
    calls, which are handed over alike, cost less than it: without their bound a forged span could hide in the rest.
    """
    return baseline.overhead_ns - max(0, -(baseline.excess_ns or 0) - CLOCK_SLACK_NS)


def _library(baseline: BaselineMeasurement | None, flags: list[Flag]) -> _Latency | None:
    """Return the denominator's latency; where the device drifted, the faster of the two measurements."""
    if baseline is None or not baseline.span_ns:
        flags.append(Flag.NO_BASELINE)
        return None
    stored = _latency_of([baseline.span_ns], "cupti")
    if not baseline.drifted:
        return stored
    flags.append(Flag.BASELINE_DRIFT)
    # Never the slower of the two: a candidate must not gain by disturbing the library beside it.
    return min(stored, _latency_of([baseline.drift_span_ns], "cupti"), key=lambda latency: latency.ns)


def physical_floor_ns(case: Case, device: DeviceIdentity) -> float:
    """Return the least time that the workload's FLOPs and bytes take at the device's theoretical ceilings.

    A ceiling that the driver does not tell (0) bounds nothing; without any the floor is 0.
    """
    flops_per_s = device.sm_count * case.arch.bf16_flops_per_clock_per_sm * device.max_sm_clock_mhz * 1e6
    bounds = ((case.flops, flops_per_s), (case.bytes, device.memory_bandwidth_bytes_per_s))
    return max((amount / ceiling * 1e9 for amount, ceiling in bounds if ceiling > 0), default=0.0)
