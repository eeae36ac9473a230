"""Between submissions, the store and the evaluation process. Everything here runs on the event loop."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
import uuid
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ptxbench.client.shapes import FINISHED, Submission, TaskKind, TaskStatus
from ptxbench.service.answers import health_answer, task_answer
from ptxbench.service.catalog import Catalog
from ptxbench.service.metrics import Metrics
from ptxbench.service.naming import ID_DIGITS, content_hash, unique_name
from ptxbench.service.peer import Peer
from ptxbench.service.settings import MAX_QUEUE_BYTES, Settings
from ptxbench.service.store import Finished, Known, Store, StoredTask, failed
from ptxbench.service.waiting_line import WaitingLine

MOST_ATTEMPTS = 3
"""A task that three evaluation processes died of is not given to a fourth."""
PREFETCH = 2
"""Tasks per slot that the evaluation process holds, so that it need not ask between two short ones."""
STORE_RETRY_S = 5.0
"""Before a result that could not be written is written again."""
SWEEP_INTERVAL_S = 3600.0
_RATE_WINDOW = 200


class RefusedError(Exception):
    """A submission that is not taken. ``status`` is HTTP's."""

    def __init__(self, status: int, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class Accepted(NamedTuple):
    """A submission that was taken, and is on disk."""

    task_id: str
    solution: str
    status: TaskStatus
    created: bool


@dataclass(eq=False)
class _Live:
    """A task without a result."""

    task: StoredTask
    durable: asyncio.Future[object]
    done: asyncio.Future[None]
    state: Literal["pending", "given", "running", "finishing"] = "pending"
    deaths: int = 0


class Broker:
    """Takes tasks, has them done, and keeps what was found. Made and used on one event loop."""

    def __init__(self, settings: Settings, catalog: Catalog, store: Store, metrics: Metrics) -> None:
        self.settings = settings
        self.catalog = catalog
        self.metrics = metrics
        self.instance_id = uuid.uuid4().hex
        self.started_at = time.time()
        self.accepting = True
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when answers that wait for something should be given as they are."""
        self._store = store
        self._peer = Peer(settings, metrics, self)
        self._live: dict[str, _Live] = {}
        self._line: WaitingLine[_Live] = WaitingLine()
        self._waiting_bytes = 0
        self._storing = 0
        """Tasks on their way to the disk: they will wait."""
        self._suspects: deque[_Live] = deque()
        """Tasks that an evaluation process died with. Each is done with no other beside it, to know which one it is."""
        self._tests_suspect = False
        """Whether what the evaluation process has is a suspect, alone."""
        self._given = 0
        self._unkept: dict[str, Finished] = {}
        """Results that could not be written yet."""
        self._store_fault = ""
        self._finished_at: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._sweeping: asyncio.Task[None] | None = None
        store.on_batch = metrics.stored

    async def start(self) -> None:
        """Start the evaluation process and take up what an earlier service left unfinished.

        Raises InputError where the profiler cannot be opened.
        """
        await self._peer.start()
        loop = asyncio.get_running_loop()
        for task in self._store.unfinished():
            if not task.content.startswith(self._origin):
                # Asked of a service that measures, where this one replays, or the other way: it waits for such a one.
                continue
            durable: asyncio.Future[object] = loop.create_future()
            durable.set_result(None)
            self._enqueue(_Live(task, durable, loop.create_future()))
            self.metrics.requeued.inc()
        self._pump()
        self._sweeping = asyncio.ensure_future(self._sweep())

    async def submit(self, kind: TaskKind, body: bytes) -> Accepted:
        """Take a submission: when this returns, it survives the death of the service.

        Raises pydantic's ValidationError for a body of another shape, InputError for one that asks for what is not
        here, RefusedError.
        """
        submission = Submission.model_validate_json(body)
        if not self.accepting:
            raise RefusedError(503, "the service is draining: expected no submission any more; try again later", 5)
        task = self._resolve(kind, submission)
        if isinstance(task, Known):
            return Accepted(task.id, task.solution, task.status, created=False)
        live = self._live.get(task.id)
        created = live is None
        live = live or self._add(task)
        try:
            await asyncio.shield(live.durable)
        except sqlite3.Error as error:
            raise RefusedError(503, f"the task store cannot be written: {error}; make room on its disk", 10) from error
        status: TaskStatus = "running" if live.state in ("running", "finishing") else "pending"
        return Accepted(live.task.id, live.task.solution, status, created)

    def _add(self, task: StoredTask) -> _Live:
        """A task on its way to the disk. Raises RefusedError where there is no room for it."""
        self._expect_room(len(task.request))
        loop = asyncio.get_running_loop()
        live = _Live(task, loop.create_future(), loop.create_future())
        self._live[task.id] = live
        self._storing += 1
        self._waiting_bytes += len(task.request)
        stored = asyncio.wrap_future(self._store.add(task))
        stored.add_done_callback(lambda outcome: self._stored(live, outcome))
        return live

    def _resolve(self, kind: TaskKind, submission: Submission) -> StoredTask | Known:
        """The task that a submission is: as it would begin, or as it is known to have been completed."""
        cases = self.catalog.select(submission, self._device_arch(submission))
        arch = cases[0].arch.name
        submission = submission.model_copy(update={"arch": arch})
        digests = [self.catalog.digest(case) for case in cases]
        digest = content_hash(kind, submission, digests, self._origin)
        content, task_id = f"{self._origin}{digest}", submission.task_id or digest[:ID_DIGITS]
        taken = self._live.get(task_id)
        known = self._store.find(task_id) if taken is None else None
        other = taken.task.content if taken is not None else known.content if known is not None else content
        if other != content:
            raise RefusedError(409, f"task {task_id}: expected the content that was submitted first, found other")
        if known is not None and known.status == "completed":
            return known
        return StoredTask(
            id=task_id,
            content=content,
            kind=kind,
            definition=submission.solution.definition,
            solution=unique_name(submission.solution),
            client=submission.client,
            priority=submission.priority,
            request=submission.model_dump_json().encode(),
            created_at=time.time(),
        )

    @property
    def measures(self) -> bool:
        """Whether there is a profiler that measures, not stored evidence."""
        return self._peer.state.origin == "measured"

    @property
    def _origin(self) -> str:
        """With what every content begins: whether it was to be measured or read back."""
        return f"{self._peer.state.origin}:"

    def _device_arch(self, submission: Submission) -> str | None:
        """The architecture of the device, for a submission that names none."""
        if self.catalog.named_arch(submission) is not None or not self.measures:
            return None
        device = self._peer.state.health.get("device")
        if device is None:
            raise RefusedError(503, "the device is not known yet: the profiler starts; try again, or name arch", 2)
        return self.catalog.arch_of_device(tuple(device["compute_capability"]))

    def _expect_room(self, size: int) -> None:
        waiting = len(self._line) + self._storing
        if waiting < self.settings.max_queue + self._free() and self._waiting_bytes + size <= MAX_QUEUE_BYTES:
            return
        ended = self._finished_at
        rate = len(ended) / max(1e-3, time.monotonic() - ended[0]) if len(ended) > 1 else 0.0  # in a second, of late
        wait_s = math.ceil(waiting / 10 / rate) if rate else 10
        message = (
            f"the queue is full: expected at most {self.settings.max_queue} tasks of {MAX_QUEUE_BYTES >> 20} MiB "
            f"in all, found {waiting}; come again"
        )
        raise RefusedError(429, message, min(60, max(1, wait_s)))

    def _free(self) -> int:
        """How many tasks the evaluation process can be given now."""
        if not self._peer.state.ready or not self.accepting or self._unkept:
            return 0  # what cannot be kept is not begun
        return max(0, PREFETCH * self.settings.slots - self._given)

    def _stored(self, live: _Live, outcome: asyncio.Future[object]) -> None:
        error = outcome.exception()
        self._storing -= 1
        self._waiting_bytes -= len(live.task.request)
        if error is not None:
            del self._live[live.task.id]
            live.durable.set_exception(error)
            live.durable.exception()  # whoever submitted may be gone
            self._store_fault = f"the latest task could not be stored: {error}; make room on the disk of its store"
            return
        self._store_fault = self._store_fault if self._unkept else ""
        live.durable.set_result(None)
        self.metrics.submitted(live.task.kind)
        self._enqueue(live)
        self._pump()

    def _enqueue(self, live: _Live, *, first: bool = False) -> None:
        self._live[live.task.id] = live
        put = self._line.put_back if first else self._line.put
        put(live, live.task.client, live.task.priority)
        self._waiting_bytes += len(live.task.request)

    def _pump(self) -> None:
        """Hand tasks to the evaluation process, as many as it can use."""
        if self._suspects:
            if self._free() and not self._given:
                self._give(self._suspects.popleft())
            return
        while self._free() and not self._tests_suspect and (live := self._line.take()) is not None:
            self._waiting_bytes -= len(live.task.request)
            self._give(live)

    def _give(self, live: _Live) -> None:
        self._given += 1
        self._tests_suspect = live.deaths > 0
        live.state = "given"
        self._peer.give(live.task)

    def status(self, task_id: str) -> TaskStatus | None:
        """Where a task is; None: there is none."""
        live = self._live.get(task_id)
        if live is not None:
            return "running" if live.state in ("running", "finishing") else "pending"
        known = self._store.find(task_id)
        return known.status if known is not None else None

    async def wait(self, task_ids: Iterable[str], timeout_s: float, gone: asyncio.Future[None] | None = None) -> None:
        """Until these tasks have ended, ``timeout_s`` seconds are over, the service closes, or ``gone`` is done."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        over = {self._closing, gone} if gone is not None else {self._closing}
        # One after the other, and nothing is cancelled or left behind: others wait for the same tasks, and a poll of
        # many that is repeated must not leave something at each of them.
        for done in [self._end_of(task_id) for task_id in task_ids] if timeout_s > 0 else []:
            if done is not None and not done.done():
                left = deadline - loop.time()
                if left <= 0 or any(end.done() for end in over):
                    return
                await asyncio.wait({done, *over}, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    def _end_of(self, task_id: str) -> asyncio.Future[None] | None:
        """Done when a task has ended; None: it has."""
        live = self._live.get(task_id)
        if live is not None:
            return live.done
        if self.status(task_id) in FINISHED:
            return None
        return asyncio.get_running_loop().create_future()  # of another kind of service: in vain

    def view(self, task_id: str, *, detail: bool = False) -> bytes | None:
        """JSON of ``Task``; None: there is no such task."""
        live = self._live.get(task_id)
        if live is not None:
            task, status = live.task, self.status(task_id)
            assert status is not None
            return task_answer(task_id, status, (task.kind, task.definition, task.solution), None)
        known = self._store.find(task_id)
        if known is None:
            return None
        details = self._store.detail(task_id) or b"null" if detail else None
        about = (known.kind, known.definition, known.solution)
        return task_answer(task_id, known.status, about, known.result, details)

    def on_ready(self) -> None:
        """The evaluation process takes tasks."""
        self._pump()

    def on_begun(self, task_id: str) -> None:
        """It does one."""
        live = self._live.get(task_id)
        if live is not None and live.state == "given":
            live.state = "running"

    def on_done(self, task_id: str, found: Finished, seconds: float) -> None:
        """It has done one."""
        self._given -= 1
        self._tests_suspect = False
        live = self._live.get(task_id)
        if live is not None:
            self.metrics.evaluated(live.task.kind, found.status, seconds)
            self._finish(live, found)
        self._pump()

    def _finish(self, live: _Live, found: Finished) -> None:
        """Keep a result; whoever waits hears of it once it is on disk."""
        live.state = "finishing"
        stored = asyncio.wrap_future(self._store.finish(live.task.id, found))

        def kept(outcome: asyncio.Future[object]) -> None:
            error = outcome.exception()
            if error is not None:
                self.metrics.lost_writes.inc()
                self._unkept[live.task.id] = found
                self._store_fault = f"results cannot be stored: {error}; make room on the disk of {self.settings.store}"
                asyncio.get_running_loop().call_later(STORE_RETRY_S, self._finish, live, found)
                return
            if self._unkept.pop(live.task.id, None) is not None and not self._unkept:
                self._store_fault = ""
                self._pump()
            self._live.pop(live.task.id, None)
            self._finished_at.append(time.monotonic())
            if not live.done.done():
                live.done.set_result(None)

        stored.add_done_callback(kept)

    def on_died(self) -> None:
        """It is gone: what it had goes back to the line, before everything else."""
        self._given = 0
        self._tests_suspect = False
        for live in reversed(list(self._live.values())):
            state = live.state
            if state not in ("given", "running"):
                continue
            live.state = "pending"
            live.deaths += state == "running"
            if live.deaths >= MOST_ATTEMPTS:
                text = f"{MOST_ATTEMPTS} evaluation processes died while they did this task"
                self._finish(live, failed(text, {"kind": "worker_died", "message": text}))
            elif live.deaths:
                self._suspects.appendleft(live)
            else:
                self._enqueue(live, first=True)

    async def _sweep(self) -> None:
        """Forget what is old."""
        while True:
            self._store.remove_older(self.settings.keep_days)
            await asyncio.sleep(SWEEP_INTERVAL_S)

    def health(self) -> dict[str, Any]:
        """Fields of ``ServiceHealth``."""
        return {
            **health_answer(self._peer.state, self.settings.profiler, self._store_fault, accepting=self.accepting),
            "queue_size": len(self._line) + len(self._suspects),
            "active_tasks": self._given,
            "instance_id": self.instance_id,
            "dataset_id": self.catalog.dataset_id,
            "started_at": self.started_at,
            "accepting": self.accepting,
        }

    def update_gauges(self) -> None:
        """Bring the metrics that are states, not events, up to date."""
        self.metrics.states(self._line.lengths(), self._given, self._peer.state.ready)

    async def drain(self) -> None:
        """Take nothing more and let what runs end, for at most ``drain_s`` seconds; what waits stays on disk."""
        self.accepting = False
        deadline = time.monotonic() + self.settings.drain_s
        while self._given and self._peer.state.ready and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if not self._closing.done():
            self._closing.set_result(None)

    async def close(self) -> None:
        """End the evaluation process and finish the store's writes. Idempotent."""
        self.accepting = False
        if not self._closing.done():
            self._closing.set_result(None)
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._peer.close()
        # What it had found has been handed to this loop before its end was.
        await asyncio.sleep(0)
        for task_id, found in self._unkept.items():
            self._store.finish(task_id, found)
        await asyncio.to_thread(self._store.close)
