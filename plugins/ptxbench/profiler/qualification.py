"""The libraries, qualified against the definition's reference and timed by the candidates' procedure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.baselines import PLANNED, library_version
from ptxbench.profiler.exact import exact_errors
from ptxbench.profiler.procedure import failed, timed_loop, timing_of
from ptxbench.profiler.reference_baseline import is_reference, reference_job
from ptxbench.profiler.replies import WorkerError, detail_of
from ptxbench.profiler.state import CheckedDraw, WorkloadState
from ptxbench.profiler.worker import Worker
from ptxbench.records import (
    CORRECTNESS_CALL,
    OFFICIAL_FAMILY,
    BaselineMeasurement,
    CheckedCall,
    ExactErrors,
    Timing,
)

DRIFT_WARMUP = 1
CALL_TIMEOUT_S = 60.0
"""The first call of a library may build plans."""
PLAN_TIMEOUT_S = 900.0
"""FlashInfer compiles when it plans for the first time: 84 s for one wrapper (H200 host), more with two processors."""
QUALIFYING_SHARE = 0.95
"""Share of the tolerance within which the library must stay on every checked draw. The official rule allows no element
beyond it, and a draw on which BF16 rounding brings the library itself that far says little of a candidate. Another
kernel rounds elsewhere and may go beyond it on other draws: ``CheckedCall.is_near_miss``."""
MAX_REDRAWS = 8


class Baselines:
    """The trusted worker, bound to one state at a time and replaced when it fails."""

    def __init__(self, start: Callable[[], Worker]) -> None:
        self._start = start
        self._worker = start()
        self._bound: WorkloadState | None = None
        self._mapped: set[str] = set()
        self._planned = ""
        """Family whose index inputs the bound call was planned for."""
        self._detail = ""

    def bind(self, state: WorkloadState) -> Worker:
        """The worker with this state's library call loaded. Raises InfrastructureError("baseline_unavailable")."""
        if self._bound is not state:
            try:
                self._worker.wait_ready()
            except InfrastructureError:
                self._replace()
                raise
            if self._bound is not None:
                self._worker.notify("release")
            self._bound, self._planned, self._detail = None, "", ""
            case = state.case
            # Even a job that does not load may have mapped its arena.
            self._mapped.add(state.arena.handle)
            job = {
                "handle": state.arena.handle,
                "tensors": state.arena.describe(),
                "call": case.baseline.call,
                "causal": case.causal,
                "scalars": case.scalars(),
                **reference_job(case),
            }
            try:
                self._worker.load(job, CALL_TIMEOUT_S)
            except WorkerError as error:
                raise self._unavailable(state, "does not load", error) from error
            self._bound = state
        return self._worker

    def _unavailable(self, state: WorkloadState, what: str, error: WorkerError) -> InfrastructureError:
        """Replace the worker, whatever state it is in, and say what happened."""
        said = self._worker.output_tail()
        self._replace()
        case = state.case
        return InfrastructureError(
            "baseline_unavailable", f"{case.name}: {case.baseline.call} {what}: {error}; its last words: {said!r}"
        )

    def _replace(self) -> None:
        self._worker.close()
        self._worker = self._start()
        self._bound, self._planned, self._detail = None, "", ""
        self._mapped.clear()

    def _plan(self, state: WorkloadState, worker: Worker, family: str) -> None:
        """Have the library plan for the staged draw, of this family, if it plans at all. Raises WorkerError."""
        if state.case.baseline.call in PLANNED and self._planned != family:
            self._planned = ""
            self._detail = detail_of(worker.request("plan", PLAN_TIMEOUT_S))
            self._planned = family

    def forget(self, state: WorkloadState) -> None:
        """Let go of a state that is about to be freed."""
        if state.arena.handle not in self._mapped:
            return
        self._mapped.discard(state.arena.handle)
        if self._bound is not None:
            # Only an unbound worker listens for ``forget``; the next ``bind`` loads again.
            self._worker.notify("release")
            self._bound = None
        self._worker.notify("forget", handle=state.arena.handle)

    def time(self, state: WorkloadState, warmup: int, iterations: int) -> Timing:
        """Warm-ups and timed iterations of the library call on fresh data."""
        worker = self.bind(state)
        try:
            if state.case.baseline.call in PLANNED and self._planned != OFFICIAL_FAMILY:
                state.stage(state.checked[0])
                self._plan(state, worker, OFFICIAL_FAMILY)
            walls, _ = timed_loop(state, worker, warmup, iterations, {})
            return timing_of(worker.collect(len(walls)), walls, warmup)
        except WorkerError as error:
            raise self._unavailable(state, "failed", error) from error

    def _run(self, state: WorkloadState, draw: CheckedDraw) -> None:
        """Leave the library's results for a draw in the outputs. Raises WorkerError."""
        worker = self.bind(state)
        state.stage(draw)
        self._plan(state, worker, draw.draw.family)
        worker.call(CALL_TIMEOUT_S)
        worker.request("publish")
        worker.request("collect")  # nobody reads the time of this call

    def _check(self, state: WorkloadState, index: int) -> CheckedCall:
        draw = state.checked[index]
        try:
            self._run(state, draw)
        except WorkerError as error:
            raise self._unavailable(state, "failed", error) from error
        return state.compare(draw, CORRECTNESS_CALL, share=QUALIFYING_SHARE)

    def qualify(self, state: WorkloadState) -> CheckedCall:
        """Replace every checked draw on which the library leaves the qualifying share; returns the last check.

        Raises InfrastructureError("reference_failed") when it leaves it on draw after draw.
        """
        state.arena.arm()  # a candidate may have broken a guard, which is no fault of the library's
        for index in range(len(state.checked)):
            check = self._check(state, index)
            for _ in range(MAX_REDRAWS):
                if not failed(check):
                    break
                state.replace_draw(index)
                check = self._check(state, index)
            if failed(check):
                wrong = "; ".join(f"{out.name}: {out.mismatched} of {out.elements}" for out in check.outputs)
                raise InfrastructureError(
                    "reference_failed",
                    f"{state.case.name}: {state.case.baseline.call} and the definition's reference disagree on draw "
                    f"after draw (elements beyond {QUALIFYING_SHARE} of the tolerance: {wrong}); mend one of them",
                )
        return check

    def _exact(self, state: WorkloadState) -> ExactErrors | None:
        """Errors of library and reference on the draw that was run last, against an oracle of higher precision."""
        draw = state.checked[-1]
        return exact_errors(state.case, state.arena.tensors, state.arena.tensors, draw.references)

    def _family_errors(self, state: WorkloadState) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
        """The library's errors in every family beyond the official one, and those of the worst blocks.

        None where it failed.
        """
        found: dict[str, dict[str, float]] = {}
        worst: dict[str, dict[str, float]] = {}
        for draw in state.families:
            try:
                self._run(state, draw)
            except WorkerError:
                # What this says is that the family is no measure of a candidate. The next call binds a new worker.
                self._replace()
                found[draw.draw.family] = worst[draw.draw.family] = {}
                continue
            outputs = state.compare(draw, CORRECTNESS_CALL).outputs
            found[draw.draw.family] = {out.name: math.inf if out.not_finite else out.relative_rms for out in outputs}
            blocks = {out.name: out.worst_block_rms for out in outputs}
            worst[draw.draw.family] = {name: error for name, error in blocks.items() if error is not None}
        return found, worst

    def measure(self, state: WorkloadState, overhead_ns: int) -> BaselineMeasurement:
        """Qualify the library against the reference and time it with the candidate's trials and iterations."""
        case = state.case
        check = self.qualify(state)
        exact = self._exact(state)
        detail = self._detail
        timings = [self.time(state, case.warmup, case.iterations) for _ in range(case.trials)]
        families, families_worst = self._family_errors(state)
        beyond = [wall - span for timing in timings for wall, span in zip(timing.wall_ns, timing.span_ns, strict=True)]
        return BaselineMeasurement(
            library=case.baseline.library,
            version=library_version(case.baseline.library),
            call=case.baseline.call,
            span_ns=tuple(span for timing in timings for span in timing.span_ns),
            overhead_ns=overhead_ns,
            excess_ns=int(statistics.median(beyond)) - overhead_ns,
            # A reference that is compared with itself has no error to measure others by.
            relative_rms={} if is_reference(case) else {out.name: out.relative_rms for out in check.outputs},
            detail=detail,
            exact=exact,
            families=families,
            families_worst=families_worst,
        )

    def drift(self, state: WorkloadState, iterations: int) -> tuple[int, ...]:
        """A brief re-timing: spans in ns."""
        return self.time(state, DRIFT_WARMUP, iterations).span_ns

    def close(self) -> None:
        """End the worker."""
        self._worker.close()
