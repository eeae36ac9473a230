"""The measuring procedure of PROTOCOL 4.4 and 4.5, the same for candidates and baselines.

Before every call, timed or not, the oracle writes other inputs to the same addresses and poisons the outputs; that
also leaves L2 cold. Timed iterations are checked calls as well: some, chosen secretly, are compared in full.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.baselines import library_version
from ptxbench.profiler.replies import Recording, WorkerError
from ptxbench.profiler.spares import Spares
from ptxbench.profiler.state import TIMED_CHECKS, CheckedDraw, WorkloadState
from ptxbench.profiler.worker import Worker
from ptxbench.records import (
    BaselineMeasurement,
    CheckedCall,
    KernelLaunch,
    RunEvidence,
    RunStatus,
    Timing,
    Trial,
)

DRIFT_WARMUP, DRIFT_ITERATIONS = 1, 5
NULL_WARMUP, NULL_ITERATIONS = 5, 20
EVALUATION_TIMEOUT_S = 600.0
"""For all calls of one candidate: 183 of them may take 3.3 s each. Without it each could take ``CALL_TIMEOUT_S``."""
BASELINE_CALL_TIMEOUT_S = 60.0
"""The first call of a library may build plans."""


class Stopwatch:
    """Wall time by stage, in ms."""

    def __init__(self) -> None:
        self.stages_ms: dict[str, float] = {}
        self.stage = ""

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the block's time to a stage."""
        self.stage = stage
        begin = time.perf_counter()
        try:
            yield
        finally:
            elapsed = (time.perf_counter() - begin) * 1e3
            self.stages_ms[stage] = round(self.stages_ms.get(stage, 0.0) + elapsed, 3)


def failed(check: CheckedCall) -> bool:
    """Whether a checked call can no longer lead to a correct verdict, so that timing it would be wasted."""
    return not check.inputs_intact or not check.guards_intact or any(out.mismatched for out in check.outputs)


def timed_loop(
    state: WorkloadState, worker: Worker, warmup: int, iterations: int, checks: dict[int, CheckedDraw]
) -> tuple[list[int], list[CheckedCall]]:
    """Wall times (ns) of the timed iterations and the checked calls among them. Stops behind a failed check.

    Warm-ups are one hand-over: they are not timed, so they need no fresh data. Every timed iteration gets its own.
    """
    walls: list[int] = []
    checked: list[CheckedCall] = []
    if warmup:
        state.stage_fresh()
        worker.warm_up(warmup)
    else:
        # As a warm-up does: drop what was recorded of the calls before these.
        worker.request("collect")
    for index in range(iterations):
        draw = checks.get(index)
        if draw:
            state.stage(draw)
        else:
            state.stage_fresh()
        walls.append(worker.call())
        if draw:
            checked.append(state.compare(draw, index))
            if failed(checked[-1]):
                break
    return walls, checked


def timing_of(recording: Recording, walls: Sequence[int], warmup: int) -> Timing:
    """What the worker recorded and the oracle's clock saw, iteration by iteration."""
    return Timing(
        warmup=warmup,
        span_ns=recording.spans,
        wall_ns=tuple(walls),
        activities=recording.activities,
        stray=recording.stray,
    )


def launches_of(recording: Recording) -> tuple[KernelLaunch, ...]:
    """Kernels seen, sorted by name."""
    return tuple(
        KernelLaunch(**launch._asdict() | {"launches_per_call": round(launch.launches_per_call, 3)})
        for launch in sorted(recording.launches)
    )


def run_trial(
    state: WorkloadState, worker: Worker, draws: Sequence[CheckedDraw], watch: Stopwatch
) -> tuple[Trial, tuple[KernelLaunch, ...]]:
    """One trial: a fully checked call, then warm-ups and timed iterations. Raises WorkerError."""
    case = state.case
    state.arena.arm()
    first, *secret = draws
    launches: tuple[KernelLaunch, ...] = ()
    with watch.measure("check"):
        state.stage(first)
        worker.call()
        checks = [state.compare(first, -1)]
    timing = None
    if not failed(checks[0]):
        with watch.measure("time"):
            chosen = random.SystemRandom().sample(range(case.iterations), len(secret))
            walls, timed_checks = timed_loop(
                state, worker, case.warmup, case.iterations, dict(zip(chosen, secret, strict=True))
            )
            recording = worker.collect(len(walls))
        checks += timed_checks
        launches = launches_of(recording)
        if len(walls) == case.iterations:
            timing = timing_of(recording, walls, case.warmup)
    trial = Trial(
        seed=state.seed,
        family=case.input_recipe,
        checks=tuple(checks),
        guards_intact=state.arena.guards_intact(),
        timing=timing,
    )
    return trial, launches


class Baselines:
    """The trusted worker, bound to one state at a time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._bound: WorkloadState | None = None

    def bind(self, state: WorkloadState) -> Worker:
        """The worker with this state's library call loaded. Raises InfrastructureError("baseline_unavailable")."""
        if self._bound is not state:
            self._worker.wait_ready()
            if self._bound is not None:
                self._worker.notify("release")
            self._bound = None
            case = state.case
            job = {
                "handle": state.arena.handle,
                "tensors": state.arena.describe(),
                "call": case.baseline.call,
                "causal": case.causal,
            }
            try:
                self._worker.load(job, BASELINE_CALL_TIMEOUT_S)
            except WorkerError as fault:
                raise InfrastructureError(
                    "baseline_unavailable", f"{case.name}: {case.baseline.call} does not load: {fault}"
                ) from fault
            self._bound = state
        return self._worker

    def forget(self, state: WorkloadState) -> None:
        """Let go of a state that is about to be freed."""
        if self._bound is not None:
            # Only an unbound worker listens for ``forget``; the next ``bind`` loads again.
            self._worker.notify("release")
            self._bound = None
        self._worker.notify("forget", handle=state.arena.handle)

    def time(self, state: WorkloadState, warmup: int, iterations: int) -> Timing:
        """Warm-ups and timed iterations of the library call on fresh data."""
        worker = self.bind(state)
        try:
            walls, _ = timed_loop(state, worker, warmup, iterations, {})
            return timing_of(worker.collect(len(walls)), walls, warmup)
        except WorkerError as fault:
            raise InfrastructureError(
                "baseline_unavailable", f"{state.case.name}: {state.case.baseline.call} failed: {fault}"
            ) from fault

    def measure(self, state: WorkloadState, overhead_ns: int) -> BaselineMeasurement:
        """Qualify the library against the reference and time it with the candidate's trials and iterations."""
        case = state.case
        worker = self.bind(state)
        draw = state.checked[0]
        try:
            state.stage(draw)
            worker.call(BASELINE_CALL_TIMEOUT_S)
            worker.request("publish")
        except WorkerError as fault:
            raise InfrastructureError(
                "baseline_unavailable", f"{case.name}: {case.baseline.call} failed: {fault}"
            ) from fault
        check = state.compare(draw, -1)
        timings = [self.time(state, case.warmup, case.iterations) for _ in range(case.trials)]
        return BaselineMeasurement(
            library=case.baseline.library,
            version=library_version(case.baseline.library),
            call=case.baseline.call,
            span_ns=tuple(span for timing in timings for span in timing.span_ns),
            overhead_ns=overhead_ns,
            relative_rms={out.name: out.relative_rms for out in check.outputs},
            mismatched={out.name: out.mismatched for out in check.outputs},
        )

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    def drift(self, state: WorkloadState) -> tuple[int, ...]:
        """A brief re-timing: spans in ns."""
        return self.time(state, DRIFT_WARMUP, DRIFT_ITERATIONS).span_ns


def hand_over_ns(state: WorkloadState, spares: Spares) -> int:
    """Wall time minus device time of a call that does nothing, in a sandbox without a candidate."""
    worker = spares.take()
    try:
        worker.load({"null": True})
        walls, _ = timed_loop(state, worker, NULL_WARMUP, NULL_ITERATIONS, {})
        timing = timing_of(worker.collect(len(walls)), walls, NULL_WARMUP)
    except WorkerError as error:
        raise InfrastructureError("sandbox_failed", f"an empty call failed in a sandbox: {error}") from error
    finally:
        worker.close()
    return int(statistics.median(wall - span for wall, span in zip(timing.wall_ns, timing.span_ns, strict=True)))


def evaluate(
    state: WorkloadState, job: dict[str, Any], spares: Spares, baselines: Baselines, *, cached: bool
) -> RunEvidence:
    """One evaluation, repeated once in a new sandbox when the baseline drifted beside it."""
    watch = Stopwatch()
    if state.baseline is None:
        with watch.measure("baseline"):
            spares.settle()
            state.baseline = baselines.measure(state, hand_over_ns(state, spares))
    evidence = _attempt(state, job, spares, baselines, watch)
    if evidence.baseline is not None and evidence.baseline.drifted:
        with watch.measure("baseline"):
            state.baseline = baselines.measure(state, hand_over_ns(state, spares))
        evidence = _attempt(state, job, spares, baselines, watch)
    return evidence.model_copy(update={"workload_state_cached": cached, "stages_ms": watch.stages_ms})


def _attempt(
    state: WorkloadState, job: dict[str, Any], spares: Spares, baselines: Baselines, watch: Stopwatch
) -> RunEvidence:
    trials: list[Trial] = []
    launches: tuple[KernelLaunch, ...] = ()
    baseline = state.baseline
    assert baseline is not None
    with watch.measure("sandbox"):
        worker = spares.take()
        spares.settle()
    worker.deadline = time.monotonic() + EVALUATION_TIMEOUT_S
    try:
        with watch.measure("load"):
            worker.load(job)
        per_trial = 1 + TIMED_CHECKS
        for index in range(state.case.trials):
            draws = state.checked[index * per_trial : (index + 1) * per_trial]
            trial, launches = run_trial(state, worker, draws, watch)
            trials.append(trial)
            if trial.timing is None:
                break
        else:
            with watch.measure("drift"):
                baseline = baseline.model_copy(update={"drift_span_ns": baselines.drift(state)})
        return RunEvidence(
            status=RunStatus.COMPLETED,
            output_tail=worker.output_tail(),
            trials=tuple(trials),
            launches=launches,
            baseline=baseline,
        )
    except WorkerError as fault:
        return RunEvidence(
            status=fault.status,
            stage=watch.stage,
            message=str(fault),
            error_code=fault.code,
            output_tail=worker.output_tail(),
            trials=tuple(trials),
            baseline=baseline,
        )
    finally:
        spares.retire(worker)
