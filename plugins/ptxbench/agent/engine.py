"""Runs trajectories concurrently; whoever needs a turn awaits it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from ptxbench.agent.evaluation import Evaluator
from ptxbench.agent.meter import Meter
from ptxbench.agent.plan import Skipped, TrajectoryPlan
from ptxbench.agent.profilers import Profilers
from ptxbench.agent.store import RunStore
from ptxbench.agent.trajectory import Resolution, TrajectoryRunner
from ptxbench.errors import InputError
from ptxbench.records import TurnKey, TurnRecord


class Engine:
    """The session's trajectories. Nothing runs before the first turn is asked for.

    ``plans`` is this process's whole share, in the order in which its turns will be asked for, so that up to
    ``concurrency`` trajectories overlap: models answer while kernels compile and others are measured. ``stop`` is set
    when the session ends; who else waits for something can look at it. ``meter`` hears what becomes of each turn.
    ``told`` hears of each that ended without a fault, when it does, on the thread of its trajectory; it must not raise.
    """

    def __init__(
        self,
        plans: Sequence[TrajectoryPlan],
        *,
        store: RunStore,
        evaluator: Evaluator,
        profilers: Profilers,
        concurrency: int,
        stop: threading.Event | None = None,
        meter: Meter | None = None,
        told: Callable[[TurnRecord | Skipped], None] = lambda _: None,
    ) -> None:
        self._plans = tuple(plans)
        self._store = store
        self._profilers = profilers
        self._concurrency = concurrency
        self._stop = stop or threading.Event()
        self._meter = meter or Meter()
        self._told = told
        self._runner = TrajectoryRunner(store, evaluator, profilers, self._stop.is_set, self._meter)
        self._turns: dict[str, Future[TurnRecord | Skipped]] = {
            str(plan.key(turn)): Future() for plan in self._plans for turn in range(plan.turns)
        }
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        """Held while trajectories are handed to the pool, so that closing finds all of them or none."""

    def turn(self, key: TurnKey) -> TurnRecord | Skipped:
        """Await one turn.

        Raises InfrastructureError for a fault that stayed, InputError for broken input met on the way or a turn that
        is not planned.
        """
        future = self._turns.get(str(key))
        if future is None:
            raise InputError(f"turn {key}: expected a turn of this run's plan, found none of that id")
        with self._lock:
            if self._pool is None:
                self._start()
        return future.result()

    def take_notes(self) -> list[str]:
        """What happened to devices, and was not told yet."""
        return self._profilers.take_notes()

    def close(self) -> None:
        """Stop after the stages that are in progress, and end the profilers. Idempotent.

        Raises InfrastructureError if something was measured that still cannot be stored.
        """
        self._stop.set()
        with self._lock:
            pool = self._pool
        try:
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._profilers.close()
        self._runner.save_again()

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="ptxbench-trajectory")
        for plan in self._plans:
            self._pool.submit(self._run, plan)

    def _run(self, plan: TrajectoryPlan) -> None:
        """A trajectory, whatever happens: an unresolved turn would be awaited for ever."""
        try:
            self._runner.run(plan, self._resolve)
        except BaseException as error:
            left = [turn for turn in range(plan.turns) if not self._turns[str(plan.key(turn))].done()]
            self._runner.keep_faults(plan, left, error)
            for turn in left:
                self._resolve(plan.key(turn), error)

    def _resolve(self, key: TurnKey, resolution: Resolution) -> None:
        future = self._turns[str(key)]
        if future.done():
            return
        self._meter.resolved(resolution)
        if isinstance(resolution, BaseException):
            future.set_exception(resolution)
        else:
            self._told(resolution)
            future.set_result(resolution)
