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

    def warm(self) -> None:
        """Have contexts created where the imports are done, without waiting for them."""
        for spare in tuple(self._waiting):
            self._or_dropped(spare, spare.warm)

    def settle(self) -> None:
        """Wait until no context is being created and every retired sandbox is gone: either would disturb a timing.

        Raises InfrastructureError("busy_device") while a killed candidate keeps the device, which is not the next one's
        fault.
        """
        for spare in tuple(self._waiting):
            if spare.warming:
                self._or_dropped(spare, spare.wait_ready)
        self.reap()
        if lingering():
            raise InfrastructureError(
                "busy_device",
                "a candidate's process was killed and has not let go of the device yet: nothing is timed beside it; "
                "if it stays, reset the device",
            )

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
        if not self._waiting:
            self.replenish()
        worker = next((spare for spare in self._waiting if spare.warming), self._waiting[0])
        self._or_dropped(worker, worker.wait_ready)
        self._waiting.remove(worker)
        return worker

    def _or_dropped(self, spare: Worker, step: Callable[[], None]) -> None:
        """Take a step of a spare's start; one that fails is dropped, so that nobody meets its failure again."""
        try:
            step()
        except InfrastructureError:
            self._waiting.remove(spare)
            spare.close()
            raise

    def close(self) -> None:
        """End all spares."""
        self.reap()
        while self._waiting:
            self._waiting.popleft().close()
