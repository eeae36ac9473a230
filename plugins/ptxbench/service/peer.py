"""The evaluation process as the event loop sees it: ready or not, restarted when it dies, asked for its health."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, NamedTuple, Protocol

from ptxbench.errors import InputError
from ptxbench.service.evaluations import Evaluations
from ptxbench.service.metrics import Metrics
from ptxbench.service.settings import Settings
from ptxbench.service.store import Finished, StoredTask

START_TIMEOUT_S = 120.0
"""For the evaluation process to import what it needs and say hello; one that says nothing for as long is ended."""
SILENT_S = 15.0
"""Without an answer, after which whoever asks for the service's health hears of it. Answers take milliseconds."""
FIRST_RESTART_S = 0.1
LONGEST_RESTART_S = 30.0
HEALTH_INTERVAL_S = 5.0
FIRST_HEALTH_S = 0.2
"""Between questions as long as nothing is known: a profiler of a GPU takes its time to start."""


class Owner(Protocol):
    """Who hears what becomes of tasks. Everything is called on the event loop."""

    def on_ready(self) -> None:
        """There is a process that takes tasks."""

    def on_begun(self, task_id: str) -> None:
        """A task is being done."""

    def on_done(self, task_id: str, found: Finished, seconds: float) -> None:
        """A task ended."""

    def on_died(self) -> None:
        """The process is gone with all the tasks that it had."""


class State(NamedTuple):
    """What is known of the process."""

    ready: bool
    origin: Literal["measured", "replayed"] | None
    health: dict[str, Any]
    """Fields of ``ptxbench.profiler.protocol.Health``; empty as long as there was no answer."""
    fault: str
    """Why there is no process, or no profiler behind it."""


class Peer:
    """Keeps one evaluation process alive."""

    def __init__(self, settings: Settings, metrics: Metrics, owner: Owner) -> None:
        self._settings = settings
        self._metrics = metrics
        self._owner = owner
        self._process: Evaluations | None = None
        self._generation = 0
        self._state = State(ready=False, origin=None, health={}, fault="")
        self._decided = asyncio.Event()
        self._restarts = 0
        self._silent_s = 0.0
        """Since the process was last heard, in time that this loop had to hear it."""
        self._closed = False
        self._jobs: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> State:
        """As of now."""
        if self._silent_s < SILENT_S:
            return self._state
        return self._state._replace(fault=f"the evaluation process has not answered for {self._silent_s:.0f} s")

    async def start(self) -> None:
        """Start the process and wait until it can take tasks. Raises InputError where its profiler cannot be opened."""
        self._launch()
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._decided.wait()
        except TimeoutError:
            raise InputError(
                f"--profiler {self._settings.profiler}: it did not start in {START_TIMEOUT_S:g} s"
            ) from None
        if not self._state.ready:
            raise InputError(self._state.fault)
        self._later(self._ask())

    def give(self, task: StoredTask) -> None:
        """Have a task done. Only while ``state.ready``."""
        assert self._process is not None
        self._process.begin(task)

    async def close(self) -> None:
        """End the process. Idempotent."""
        self._closed = True
        for job in list(self._jobs):
            job.cancel()
        process, self._process = self._process, None
        self._state = self._state._replace(ready=False)
        if process is not None:
            await asyncio.to_thread(process.close)

    def _launch(self) -> None:
        self._generation += 1
        self._silent_s = 0.0
        loop, generation = asyncio.get_running_loop(), self._generation

        def heard(message: dict[str, Any], found: Finished | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._heard, generation, message, found)

        self._process = Evaluations(self._settings, heard)

    def _heard(self, generation: int, message: dict[str, Any], found: Finished | None) -> None:
        if generation != self._generation:
            return
        self._silent_s = 0.0
        match message["op"]:
            case "hello":
                self._state = self._state._replace(ready=True, origin=message["origin"], fault="")
                self._decided.set()
                self._owner.on_ready()
            case "refused":
                self._state = self._state._replace(fault=message["message"])
            case "health":
                fault = message["fault"]["message"] if "fault" in message else ""
                self._state = self._state._replace(health=message.get("health", self._state.health), fault=fault)
            case "begun":
                self._owner.on_begun(message["id"])
            case "done" if found is not None:
                self._restarts = 0
                self._owner.on_done(message["id"], found, message["seconds"])
            case "died":
                self._died(message["status"])

    def _died(self, status: int) -> None:
        fault = self._state.fault or f"the evaluation process ended with status {status}"
        self._state = self._state._replace(ready=False, fault=fault)
        self._decided.set()
        if self._closed:
            return
        self._owner.on_died()
        # One that never said hello was refused its profiler: whoever started the service hears of it.
        if self._state.origin is not None:
            self._later(self._restart())

    async def _restart(self) -> None:
        self._metrics.restarts.inc()
        while True:
            await asyncio.sleep(min(LONGEST_RESTART_S, FIRST_RESTART_S * 2.0 ** min(self._restarts, 10)))
            self._restarts += 1
            try:
                self._launch()
                return
            except (OSError, RuntimeError) as error:  # no memory, processes, threads or descriptors; there may be again
                fault = f"expected to start an evaluation process, found: {error}"
                self._state = self._state._replace(fault=fault)

    async def _ask(self) -> None:
        """Ask how it is, for ever; end it where it does not even say that it was asked."""
        while True:
            if self._state.ready and self._process is not None:
                self._process.ask_health()
            pause_s = HEALTH_INTERVAL_S if self._state.health else FIRST_HEALTH_S
            await asyncio.sleep(pause_s)
            self._silent_s += pause_s
            if self._silent_s >= START_TIMEOUT_S and self._process is not None:
                self._process.kill()

    def _later(self, job: Any) -> None:  # noqa: ANN401 - a coroutine; its type has two parameters of no interest
        task: asyncio.Task[None] = asyncio.ensure_future(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
