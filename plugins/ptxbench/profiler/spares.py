"""Sandboxes kept ahead of the candidates that will run in them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.containment import Choice
from ptxbench.profiler.processes import lingering
from ptxbench.profiler.worker import Worker, sandbox_command

SPARES = 3
"""Enough for a burst of evaluations: each uses one, and the first of a workload another for an empty call."""
LOW_WATER = 2
"""With fewer left, others are started even if evaluations follow each other closely."""
IDLE_S = 1.0
"""Imports take processor time, and probably took it from evaluations beside them (loading a candidate went from 2 to
4 ms to 7 to 11, H200 host with 16 processors), so in a burst they wait until it seems to be over."""


class Spares:
    """Sandboxes without a candidate yet, started ahead.

    Starting one and its imports take a processor only; its CUDA context is created where no timing can be disturbed:
    when the oracle is idle, beside tools, behind a candidate's last timed call, or, at the latest, when it is taken.
    """

    def __init__(self, size: int = SPARES, choice: Choice | None = None) -> None:
        self._size = size
        self._choice = choice
        self._waiting: deque[Worker] = deque()
        self._retired: list[Worker] = []
        self._beside: set[Worker] = set()
        """Waiting, and asked for their contexts while a candidate's process ran."""
        self._last_use = 0.0

    def used(self) -> None:
        """A request was answered: replace what it used now if few are left, else once it seems to be the last."""
        self._last_use = time.monotonic()
        if len(self._waiting) < LOW_WATER:
            self.replenish()

    def rest(self) -> None:
        """Nobody asks for anything, and the device is ours: replace what was used and have contexts created."""
        if time.monotonic() - self._last_use >= IDLE_S:
            self.replenish()
        self.warm()
        self.settle()

    def replenish(self) -> None:
        """Start what is missing, without waiting for it."""
        while len(self._waiting) < self._size:
            self._waiting.append(Worker(sandbox_command(choice=self._choice)))

    def warm(self, *, beside_candidate: bool = False) -> None:
        """Have contexts created where the imports are done, without waiting for them.

        A candidate can fill the device's memory meanwhile, so that none can be: a spare that fails ``beside_candidate``
        says nothing of this machine, and is dropped without anybody being told.
        """
        for spare in tuple(self._waiting):
            was_warming = spare.warming
            self._or_dropped(spare, spare.warm)
            if beside_candidate and spare.warming and not was_warming:
                self._beside.add(spare)

    def settle(self) -> None:
        """Wait until no context is being created and every retired sandbox is gone: either would disturb a timing.

        Raises InfrastructureError("busy_device") while a killed candidate keeps the device, which is not the next one's
        fault.
        """
        failures = [failure for spare in tuple(self._waiting) if spare.warming and (failure := self._finish(spare))]
        self.reap()
        if lingering():
            raise InfrastructureError(
                "busy_device",
                "a candidate's process was killed and has not let go of the device yet: nothing is timed beside it; "
                "if it stays, reset the device",
            )
        if failures:
            raise failures[0]

    def _finish(self, spare: Worker) -> InfrastructureError | None:
        """Wait for a spare's context. Returns how it failed, unless a candidate may be why."""
        beside = spare in self._beside
        try:
            self._or_dropped(spare, spare.wait_ready)
        except InfrastructureError as error:
            return None if beside else error
        return None

    def retire(self, worker: Worker) -> None:
        """Kill a used sandbox now; its end, some 70 ms on the device, is waited for when somebody must know."""
        worker.kill()
        self._retired.append(worker)

    def reap(self) -> None:
        """Wait for the end of every retired sandbox."""
        while self._retired:
            self._retired.pop().close()

    def take(self) -> Worker:
        """A sandbox with a context, the one that is ready soonest."""
        while True:
            if not self._waiting:
                self.replenish()
            worker = next((spare for spare in self._waiting if spare.warming), self._waiting[0])
            if failure := self._finish(worker):
                raise failure
            if worker in self._waiting:
                self._leave(worker)
                return worker

    def _or_dropped(self, spare: Worker, step: Callable[[], None]) -> None:
        """Take a step of a spare's start; one that fails is dropped, so that nobody meets its failure again."""
        try:
            step()
        except InfrastructureError:
            self._leave(spare)
            spare.close()
            raise

    def _leave(self, spare: Worker) -> None:
        self._waiting.remove(spare)
        self._beside.discard(spare)

    def close(self) -> None:
        """End all spares."""
        self.reap()
        self._beside.clear()
        while self._waiting:
            self._waiting.popleft().close()
