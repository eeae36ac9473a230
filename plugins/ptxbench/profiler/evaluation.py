"""One evaluation of a candidate: trials in a sandbox, the library beside it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.procedure import Stopwatch, failed, launches_of, timed_loop, timing_of
from ptxbench.profiler.qualification import Baselines
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.spares import Spares
from ptxbench.profiler.state import TIMED_CHECKS, CheckedDraw, WorkloadState
from ptxbench.profiler.worker import Worker
from ptxbench.records import CORRECTNESS_CALL, KernelLaunch, RunEvidence, RunStatus, Trial

NULL_WARMUP, NULL_ITERATIONS = 5, 20
EVALUATION_TIMEOUT_S = 600.0
"""For all calls of one candidate: 183 of them may take 3.3 s each. Without it each could take ``CALL_TIMEOUT_S``."""


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
        checks = [state.compare(first, CORRECTNESS_CALL)]
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


def _hogged(error: Exception) -> WorkerError:
    """The oracle found no memory beside a candidate, where it had enough before: the candidate holds it."""
    return WorkerError(RunStatus.RUNTIME_ERROR, f"the candidate left too little device memory: {str(error)[:200]}")


def _attempt(
    state: WorkloadState, job: dict[str, Any], spares: Spares, baselines: Baselines, watch: Stopwatch
) -> RunEvidence:
    import torch

    trials: list[Trial] = []
    launches: tuple[KernelLaunch, ...] = ()
    baseline = state.baseline
    assert baseline is not None
    with watch.measure("sandbox"):
        worker = spares.take()
        spares.settle()
    state.source.forget()
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
    except (WorkerError, torch.OutOfMemoryError) as fault:
        error = fault if isinstance(fault, WorkerError) else _hogged(fault)
        return RunEvidence(
            status=error.status,
            stage=watch.stage,
            message=str(error),
            error_code=error.code,
            output_tail=worker.output_tail(),
            trials=tuple(trials),
            baseline=baseline,
        )
    finally:
        spares.retire(worker)
