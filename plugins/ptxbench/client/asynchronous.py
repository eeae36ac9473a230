"""The client for event loops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from ptxbench.client import calls
from ptxbench.client.calls import Call, SolutionLike
from ptxbench.client.retrying import ANSWER_TIMEOUT_S, DEFAULT_PATIENCE_S, Attempts, ServiceError, settings_of
from ptxbench.client.shapes import DefinitionInfo, ServiceHealth, Submitted, Task, TaskKind

if TYPE_CHECKING:
    import httpx


class AsyncClient:
    """``Client`` for one event loop. Every method raises ServiceError."""

    def __init__(self, url: str, *, token: str | None = None, patience_s: float = DEFAULT_PATIENCE_S) -> None:
        """``token``: of the service, by default the environment's ``PTXBENCH_TOKEN``.

        ``patience_s``: for how many seconds a service that is busy, restarts or cannot be reached is tried again.
        """
        import httpx

        self._settings = settings_of(url, token, patience_s)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        self._http: httpx.AsyncClient = httpx.AsyncClient(
            base_url=self._settings.url, headers=self._settings.headers, limits=limits, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._http.aclose()

    async def submit(
        self,
        kind: TaskKind,
        solution: SolutionLike,
        workload_uuids: Sequence[str] | None = None,
        **options: object,
    ) -> Submitted:
        """Have a solution evaluated, profiled, sanitized or debugged; ``options`` are fields of ``Submission``.

        The same content is one task, however often it is submitted, so a submission can be repeated safely.
        """
        return calls.read(Submitted, await self._send(calls.submit(kind, solution, workload_uuids, options)))

    async def evaluate(
        self, solution: SolutionLike, workload_uuids: Sequence[str] | None = None, **options: object
    ) -> Submitted:
        """Have a solution measured and judged."""
        return await self.submit("evaluate", solution, workload_uuids, **options)

    async def profile(
        self, solution: SolutionLike, workload_uuids: Sequence[str] | None = None, **options: object
    ) -> Submitted:
        """Have executed instructions counted."""
        return await self.submit("profile", solution, workload_uuids, **options)

    async def sanitize(
        self, solution: SolutionLike, workload_uuids: Sequence[str] | None = None, **options: object
    ) -> Submitted:
        """Have compute-sanitizer look, with ``sanitizer_types``."""
        return await self.submit("sanitize", solution, workload_uuids, **options)

    async def debug(
        self, solution: SolutionLike, workload_uuids: Sequence[str] | None = None, **options: object
    ) -> Submitted:
        """Find out where a call ends or waits, and what memcheck says."""
        return await self.submit("debug", solution, workload_uuids, **options)

    async def task(self, task_id: str, timeout_s: float = 0.0, *, detail: bool = False) -> Task:
        """A task, as it is, or once it has finished if that is within ``timeout_s`` seconds; ``detail``: with
        evidence."""
        return calls.read(Task, await self._send(calls.task(task_id, timeout_s, detail=detail)))

    async def tasks(self, task_ids: Sequence[str], timeout_s: float = 0.0) -> list[Task]:
        """Several tasks, in this order."""
        return calls.read(list[Task], await self._send(calls.tasks(task_ids, timeout_s)))

    async def wait(self, task_id: str, timeout_s: float | None = None, *, detail: bool = False) -> Task:
        """A task once it has finished, over restarts of the service. Raises ServiceError after ``timeout_s``."""
        deadline = time.monotonic() + timeout_s if timeout_s is not None else None
        while True:
            left = calls.POLL_S if deadline is None else min(calls.POLL_S, deadline - time.monotonic())
            found = await self.task(task_id, max(0.0, left), detail=detail)
            if found.finished:
                return found
            if deadline is not None and time.monotonic() >= deadline:
                raise ServiceError(f"task {task_id}: expected its end within {timeout_s:g} s, found it {found.status}")

    async def health(self) -> ServiceHealth:
        """What the service does now."""
        return calls.read(ServiceHealth, await self._send(calls.get("health")))

    async def definitions(self) -> list[DefinitionInfo]:
        """What can be evaluated."""
        return calls.read(list[DefinitionInfo], await self._send(calls.get("definitions")))

    async def definition(self, name: str) -> dict[str, Any]:
        """A definition, as FlashInfer-Trace."""
        return calls.read(dict[str, Any], await self._send(calls.get("definitions", name)))

    async def workloads(self, definition: str) -> list[dict[str, Any]]:
        """A definition's workloads, as FlashInfer-Trace."""
        found = await self._send(calls.get("definitions", definition, "workloads"))
        return calls.read(list[dict[str, Any]], found)

    async def workload(self, uuid: str) -> dict[str, Any]:
        """A workload, as FlashInfer-Trace."""
        return calls.read(dict[str, Any], await self._send(calls.get("workloads", uuid)))

    async def _send(self, call: Call) -> bytes:
        import httpx

        attempts = Attempts(self._settings)
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S + call.wait_s, connect=ANSWER_TIMEOUT_S)
        while True:
            try:
                answer = await self._http.request(
                    call.method, call.path, params=call.params, content=call.body, timeout=timeout
                )
            except httpx.TransportError as error:
                await asyncio.sleep(attempts.after_failure(error))
                continue
            except httpx.HTTPError as error:  # an answer that is none of HTTP's
                raise ServiceError(f"{self._settings.url}: {type(error).__name__}: {error}") from error
            if answer.is_success:
                return answer.content
            await asyncio.sleep(attempts.after_answer(answer.status_code, answer.headers, answer.text))
