"""The procedure that every timed call follows, a candidate's or a library's (PROTOCOL 4.4 and 4.5).

Before every timed call the oracle writes other inputs to the same addresses and poisons the outputs; that also leaves
L2 cold. Timed iterations are checked calls as well: some, chosen secretly, are compared in full.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ptxbench.profiler.replies import Recording
from ptxbench.profiler.state import CheckedDraw, WorkloadState
from ptxbench.profiler.worker import Worker
from ptxbench.records import CheckedCall, KernelLaunch, Timing


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
    return not check.inputs_intact or not check.guards_intact or any(map(check.disagrees, check.outputs))


def timed_loop(
    state: WorkloadState, worker: Worker, warmup: int, iterations: int, checks: Mapping[int, CheckedDraw]
) -> tuple[list[int], list[CheckedCall]]:
    """Wall times (ns) of the timed iterations and the checked calls among them. Stops behind a failed check.

    Warm-ups are one hand-over on one fresh draw, since nobody times them. Every timed iteration gets its own draw.
    """
    walls: list[int] = []
    checked: list[CheckedCall] = []
    if warmup:
        state.stage_fresh(state.source.draw())
        worker.warm_up(warmup)
    fresh = state.source.draw()
    for index in range(iterations):
        check = checks.get(index)
        if check:
            state.stage(check)
        else:
            state.stage_fresh(fresh)
        begin = worker.begin_call()
        fresh = state.source.draw()  # while the device works
        worker.finish_call()
        walls.append(time.perf_counter_ns() - begin)
        if check:
            checked.append(state.compare(check, index))
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
