"""One evaluation of a candidate: trials in a sandbox, the library beside it."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import clocks, disturbances, hang, loaded_code, mappings
from ptxbench.profiler.defences import active
from ptxbench.profiler.device_memory import taken_by_candidate
from ptxbench.profiler.procedure import Stopwatch, failed, launches_of, timed_loop, timing_of
from ptxbench.profiler.qualification import Baselines
from ptxbench.profiler.replies import Recording, WorkerError
from ptxbench.profiler.retrace import look_again
from ptxbench.profiler.spares import Spares
from ptxbench.profiler.state import TIMED_CHECKS, CheckedDraw, WorkloadState
from ptxbench.profiler.worker import CALL_TIMEOUT_S, Worker
from ptxbench.records import (
    CORRECTNESS_CALL,
    BaselineMeasurement,
    CheckedCall,
    ClockSample,
    FamilyCheck,
    KernelLaunch,
    LoadedCode,
    RunEvidence,
    RunStatus,
    Trial,
)

NULL_WARMUP, NULL_ITERATIONS = 10, 50
DRIFT_OF_A_TRIAL = 1
"""Timed iterations of the library behind each trial."""
DRIFT_ALONE = 3
"""The same where it is timed again without the candidate's process."""
EVALUATION_TIMEOUT_S = 600.0
"""For all calls of one candidate: 183 of them may take 3.3 s each. Without it each could take ``CALL_TIMEOUT_S``."""
CALLING_STAGES = ("check", "time")
"""Stages of ``Stopwatch`` in which the candidate is called."""


def choose_checks(state: WorkloadState) -> list[tuple[CheckedDraw, dict[int, CheckedDraw]]]:
    """Per trial the draw of its correctness call and the secretly checked timed iterations.

    The positions are chosen over all trials together: a candidate that notices a check, by the time the comparison
    takes, learns nothing of how many are left in this trial. Which draw goes where is new for every candidate, but a
    trial's first call, which everybody knows to be checked, has draws of its own: whoever remembers them from an
    earlier life meets none of them in a timed iteration.
    """
    case, secret = state.case, random.SystemRandom()
    known = secret.sample(state.checked[: case.trials], case.trials)
    hidden = secret.sample(state.checked[case.trials :], len(state.checked) - case.trials)
    iterations = range(case.trials * case.iterations)  # of which a suite's own protocol may ask for fewer than checks
    positions = secret.sample(iterations, min(len(iterations), case.trials * TIMED_CHECKS))
    timed = dict(zip(positions, hidden, strict=False))
    return [
        _with_active_defences(
            state,
            first,
            {place % case.iterations: draw for place, draw in timed.items() if place // case.iterations == trial},
        )
        for trial, first in enumerate(known)
    ]


def _with_active_defences(
    state: WorkloadState, first: CheckedDraw, timed: dict[int, CheckedDraw]
) -> tuple[CheckedDraw, dict[int, CheckedDraw]]:
    """A trial's draws: as they are in every run, or of a self-test that has switched something off."""
    if not active("fresh_inputs"):
        first = state.checked[0]
    if not active("fresh_inputs") or not active("separate_seeds"):
        timed = dict.fromkeys(timed, first)
    return first, timed if active("timed_checks") else {}


def run_trial(
    state: WorkloadState, worker: Worker, first: CheckedDraw, secret: Mapping[int, CheckedDraw], watch: Stopwatch
) -> tuple[Trial, Recording | None]:
    """One trial: a fully checked call, then warm-ups and timed iterations. Raises WorkerError.

    Returns what the worker recorded of the timed iterations, if there were any and it could tell.
    """
    case = state.case
    state.arena.arm()
    with watch.measure("check"):
        checks, near_miss = [_correctness_call(state, worker, first)], None
    if checks[0].is_near_miss:
        with watch.measure("redraw"):
            another = _another_draw(state)
        if another is not None:
            with watch.measure("check"):
                near_miss, checks = checks[0], [_correctness_call(state, worker, another)]
            del another  # its references need not lie there while others are timed
    walls: list[int] = []
    recording: Recording | None = None
    clock: ClockSample | None = None
    if not failed(checks[0]):
        with watch.measure("time"):
            walls, timed_checks = timed_loop(state, worker, case.warmup, case.iterations, secret)
            clock = clocks.sample()
            checks += timed_checks
            recording = _collect(worker, len(walls), needed=len(walls) == case.iterations)
    whole = recording is not None and len(walls) == case.iterations
    trial = Trial(
        seed=state.seed,
        family=case.input_recipe,
        checks=tuple(checks),
        near_miss=near_miss,
        guards_intact=state.guards_intact(),
        timing=timing_of(recording, walls, case.warmup) if recording and whole else None,
        clock=clock if whole else None,
    )
    return trial, recording


def _correctness_call(state: WorkloadState, worker: Worker, draw: CheckedDraw) -> CheckedCall:
    state.stage(draw)
    # Not recorded: a kernel that runs in this call alone does not run when timed (docs/verdict-rules.md).
    worker.warm_up(1)
    return state.compare(draw, CORRECTNESS_CALL)


def _another_draw(state: WorkloadState) -> CheckedDraw | None:
    """A draw in the place of one that was missed narrowly. None where the reference fails, which it never did without
    the candidate's process: as a fault of ours its turn would be excluded, so that the near miss stands."""
    try:
        return state.another_draw()
    except InfrastructureError:
        return None


def _collect(worker: Worker, calls: int, *, needed: bool) -> Recording | None:
    """What the worker recorded. Raises WorkerError where it is needed: after a failed check, that is the finding."""
    try:
        return worker.collect(calls)
    except WorkerError:
        if needed:
            raise
        return None


def hand_over_ns(state: WorkloadState, spares: Spares) -> int:
    """Wall time minus device time of a call that does nothing, in a sandbox without a candidate."""
    worker = spares.take()
    try:
        spares.settle()
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
    """One evaluation, repeated once in a new sandbox when the device drifted beside it or something disturbed it."""
    watch = Stopwatch()
    for attempt in range(2):
        with watch.measure("conditions"):
            before = disturbances.read()
        if state.baseline is None or attempt == 1:
            with watch.measure("baseline"):
                state.baseline = baselines.measure(state, hand_over_ns(state, spares))
        evidence = _Attempt(state, state.baseline, spares, watch).run(job, baselines)
        with watch.measure("conditions"):
            found = disturbances.since(before, evidence.trials)
        evidence = evidence.model_copy(update={"disturbances": found})
        drifted = evidence.baseline is not None and evidence.baseline.drifted
        if not drifted and not (evidence.status is RunStatus.COMPLETED and disturbances.disturbing(found)):
            break
    if disturbances.disturbing(found):
        state.baseline = None  # it may be of a disturbed device, and others would be measured against it
    return evidence.model_copy(update={"workload_state_cached": cached, "stages_ms": watch.stages_ms})


class _Attempt:
    """One candidate in one sandbox."""

    def __init__(self, state: WorkloadState, baseline: BaselineMeasurement, spares: Spares, watch: Stopwatch) -> None:
        self._state = state
        self._baseline = baseline
        self._spares = spares
        self._watch = watch
        self._trials: list[Trial] = []
        self._launches: dict[tuple[object, ...], KernelLaunch] = {}
        self._output_tail: str | None = None
        self._families: list[FamilyCheck] = []
        self._drift_ns: list[int] = []
        self._disturbed = False
        self._mapped: list[mappings.Mapped] = []
        """Before the candidate was loaded, and then behind each trial."""
        self._loaded: LoadedCode | None = None

    def run(self, job: dict[str, Any], baselines: Baselines) -> RunEvidence:
        """Trials until one fails, and the library beside them."""
        with self._sandbox() as worker:
            self._state.arena.scrub()  # what fails here is no fault of the candidate, which is not loaded yet
            try:
                with taken_by_candidate():
                    self._measure(worker, job, baselines)
                return self._evidence(worker, job)
            except WorkerError as error:
                return self._evidence(worker, job, error)

    def _measure(self, worker: Worker, job: dict[str, Any], baselines: Baselines) -> None:
        with self._watch.measure("load"):
            self._look_at_mappings(worker)
            worker.load(job)
        if self._run_trials(worker, baselines):
            self._warm_ahead()
            self._look_at_code(worker, job)
            if self._run_families(worker):
                self._look_at_code(worker, job)
            self._measure_drift(worker, baselines)

    def _run_trials(self, worker: Worker, baselines: Baselines) -> bool:
        """Run trials until one cannot lead to a correct verdict any more. Returns whether all were run whole.

        Behind each the library is timed for a moment: what changes while the candidate runs is seen in both.
        """
        for first, secret in choose_checks(self._state):
            trial, recording = run_trial(self._state, worker, first, secret, self._watch)
            self._trials.append(trial)
            for launch in launches_of(recording) if recording else ():
                self._launches[launch.name, launch.grid, launch.block] = launch
            if trial.timing is None:
                return False
            self._look_at_mappings(worker)
            with self._watch.measure("drift"):
                self._time_library(baselines)
        return True

    def _warm_ahead(self) -> None:
        """Nothing is timed any more, unless the library has to be, which waits for these contexts first."""
        with suppress(InfrastructureError):  # a spare that does not start is dropped, and no fault of this candidate
            self._spares.warm(beside_candidate=True)

    def _time_library(self, baselines: Baselines) -> None:
        try:
            self._drift_ns += baselines.drift(self._state, DRIFT_OF_A_TRIAL)
        except InfrastructureError:
            # Found again without the candidate's process, or it was what disturbed the library.
            self._disturbed = True

    def _run_families(self, worker: Worker) -> bool:
        """One checked call on each family beyond the official one. What happens in it is no fault of the trials.

        Returns whether the process answered every time.
        """
        if not active("families") or not active("fresh_inputs"):  # other families are other data
            return True
        with self._watch.measure("families"):
            for draw in self._state.families:
                family = draw.draw.family
                try:
                    with taken_by_candidate():
                        self._state.arena.arm()
                        call = _correctness_call(self._state, worker, draw)
                except WorkerError as error:
                    self._families.append(FamilyCheck(family=family, call=None, message=str(error)[:200]))
                    return False
                self._families.append(FamilyCheck(family=family, call=call))
        return True

    def _look_at_mappings(self, worker: Worker) -> None:
        self._mapped.append(mappings.mapped(worker.pid))

    def _look_at_code(self, worker: Worker, job: dict[str, Any]) -> None:
        """See what was loaded so far. Raises WorkerError."""
        with self._watch.measure("inspect"):
            self._look_at_mappings(worker)
            before, *after = self._mapped
            self._loaded = loaded_code.observe(worker, Path(job["so_path"]), before, after)

    @contextmanager
    def _sandbox(self) -> Iterator[Worker]:
        with self._watch.measure("sandbox"):
            worker = self._spares.take()
        try:
            with self._watch.measure("sandbox"):
                self._spares.settle()
            self._state.source.forget()
            worker.deadline = time.monotonic() + EVALUATION_TIMEOUT_S
            yield worker
        finally:
            self._spares.retire(worker)

    def _measure_drift(self, worker: Worker, baselines: Baselines) -> None:
        """What the library took between the trials; anew, without the candidate's process, where that is suspicious."""
        with self._watch.measure("drift"):
            self._keep_drift(self._drift_ns)
            if self._disturbed or self._baseline.drifted:
                self._output_tail = worker.output_tail()
                self._spares.retire(worker)
                self._spares.settle()
                self._keep_drift(baselines.drift(self._state, DRIFT_ALONE))

    def _keep_drift(self, spans_ns: Sequence[int]) -> None:
        self._baseline = self._baseline.model_copy(update={"drift_span_ns": tuple(spans_ns)})

    def _waiting(self, worker: Worker, error: WorkerError, job: dict[str, Any]) -> hang.Waiting:
        """Where a call that did not end waits. Its process is ended first: its kernel holds the device."""
        if error.status is not RunStatus.TIMEOUT or self._watch.stage not in CALLING_STAGES:
            return hang.Waiting()
        if worker.call_timeout_s < CALL_TIMEOUT_S:
            return hang.unknown("the time for a call was shortened, for a test that does not ask where it waits")
        self._output_tail = worker.output_tail()
        self._spares.retire(worker)
        self._spares.reap()
        with self._watch.measure("locate"):
            return look_again(self._state, job)

    def _evidence(self, worker: Worker, job: dict[str, Any], error: WorkerError | None = None) -> RunEvidence:
        stage = self._watch.stage if error else ""
        waiting = self._waiting(worker, error, job) if error else hang.Waiting()
        return RunEvidence(
            status=error.status if error else RunStatus.COMPLETED,
            stage=stage,
            message=str(error) if error else "",
            error_code=error.code if error else None,
            output_tail=worker.output_tail() if self._output_tail is None else self._output_tail,
            trials=tuple(self._trials),
            launches=tuple(
                sorted(self._launches.values(), key=lambda launch: (launch.name, launch.grid, launch.block))
            ),
            baseline=self._baseline,
            families=tuple(self._families),
            loaded=self._loaded,
            containment=worker.containment,
            waiting=waiting.places,
            waiting_unknown=waiting.unknown,
        )
