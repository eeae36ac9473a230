"""A service that measures elsewhere (``ptxbench serve``), as a profiler: ``--profiler http://host:port``.

The service builds the source with its own compiler and answers for exactly the device code that was built here, or not
at all; the case must be the same in both checkouts. So what comes back is judged here like evidence of this machine.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ptxbench.client import Client, ServiceError, Task, cuda_solution
from ptxbench.client.retrying import DEFAULT_PATIENCE_S
from ptxbench.client.shapes import ServiceHealth, TaskKind
from ptxbench.errors import InfrastructureError
from ptxbench.profiler.protocol import Health, SafetyTool
from ptxbench.profiler.ticket import current_ticket
from ptxbench.profiler.wire import case_digest, source_of
from ptxbench.records import Evidence, InstructionEvidence, SafetyEvidence

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built

NAME = "ptxbench"
"""Of solutions, at the service."""
FIRST_PATIENCE_S = 2.0
"""For a service that has not answered yet."""
DEVICE_TIMEOUT_S = 120.0
"""For the service's profiler to start: torch, the libraries, a CUDA context."""
DEVICE_POLL_S = 0.5
SHORT_POLL_S = 2.0
"""How soon a stop of the session is noticed."""


class HttpProfiler:
    """Implements ``Profiler`` over one service. Nothing is asked before it is needed."""

    def __init__(
        self, url: str, *, stopped: Callable[[], bool] = lambda: False, patience_s: float = DEFAULT_PATIENCE_S
    ) -> None:
        """Raises InfrastructureError("service_unavailable") where httpx is not installed, or for what is no URL."""
        self._url = url
        self._met = False
        self._stopped = stopped
        # A service gives what was asked before the answer it has. A new session is there to measure anew.
        self._session = f"{NAME}-{uuid.uuid4().hex[:12]}"
        try:
            self._client = Client(url, patience_s=patience_s)
        except ModuleNotFoundError as error:
            raise InfrastructureError(
                "service_unavailable", "--profiler URL: expected httpx, found none; pip install 'ptxbench[serve]'"
            ) from error
        except ServiceError as error:
            raise InfrastructureError("service_unavailable", str(error)) from error

    @cached_property
    def origin(self) -> Literal["measured", "replayed"]:
        """The service's own: it may measure or read back. Raises InfrastructureError("service_unavailable")."""
        found = self._health().origin
        if found is None:
            raise InfrastructureError("service_unavailable", "the service does not say what it measures with")
        return found

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        """Trials, latency and baseline, measured by the service; stored evidence, with all it has, by one that
        replays."""
        task = self._perform("evaluate", case, built, complete=self.origin == "replayed")
        return task.details[0].evidence if task.details else None

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        """Nsight Compute over one call."""
        found = self._perform("profile", case, built).results[0].instructions
        if found is None:
            raise InfrastructureError("service_refused", "expected counts of instructions, found none in the answer")
        return found

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        """compute-sanitizer over one call."""
        safety = self._perform("sanitize", case, built, sanitizer_types=[tool]).results[0].safety
        if len(safety) != 1:
            raise InfrastructureError("service_refused", f"expected one answer of {tool}, found {len(safety)}")
        return safety[0]

    def health(self) -> Health:
        """What stands behind the service. Waits for one that measures and does not know its device yet."""
        deadline = time.monotonic() + DEVICE_TIMEOUT_S
        found = self._health()
        while _starts(found) and time.monotonic() < deadline and not self._stopped():
            time.sleep(DEVICE_POLL_S)
            found = self._health()
        return Health(kind=f"http ({found.profiler})", device=found.device, message=found.message)

    def close(self) -> None:
        """Close the connections. What was asked for is done all the same, and is there for whoever asks again."""
        self._client.close()

    def _health(self) -> ServiceHealth:
        try:
            if not self._met:
                # Restarts are waited out, but one that was never there is most likely a slip of the pen.
                with Client(self._url, patience_s=FIRST_PATIENCE_S) as first:
                    first.health()
                self._met = True
            return self._client.health()
        except ServiceError as error:
            raise InfrastructureError("service_unavailable", str(error)) from error

    def _perform(self, kind: TaskKind, case: Case, built: Built, **options: object) -> Task:
        """One task on one workload, until it has ended. Raises InfrastructureError."""
        candidate, owner = source_of(built), current_ticket()
        name = NAME if self.origin == "replayed" else self._session
        solution = cuda_solution(case.definition.name, candidate.source, name=name, arch=case.arch.name)
        same: dict[str, Any] = {
            "arch": case.arch.name,
            "case_sha256": case_digest(case),
            "cubin_sha256": built.build.cubin_sha256,
            "nvcc": built.build.toolchain.nvcc,
            "client": owner.client,
            "priority": owner.priority,
        }
        try:
            submitted = self._client.submit(kind, solution, [case.workload.uuid], **same, **options)
            task = self._wait(submitted.task_id)
        except ServiceError as error:
            kind_of_fault = "service_unavailable" if error.status in (None, 429, 502, 503, 504) else "service_refused"
            raise InfrastructureError(kind_of_fault, str(error)) from error
        if task.fault is not None:
            raise InfrastructureError(task.fault.kind, f"at the service: {task.fault.message}")
        if not task.results:
            raise InfrastructureError("service_refused", task.error or "expected a result, found none in the answer")
        return task

    def _wait(self, task_id: str) -> Task:
        while not self._stopped():
            task = self._client.task(task_id, SHORT_POLL_S, detail=True)
            if task.finished:
                return task
        raise InfrastructureError("stopped", "the run ends: this candidate's result was not waited for")


def _starts(health: ServiceHealth) -> bool:
    """Whether the service's profiler is on its way, and has met no fault."""
    return health.origin == "measured" and health.device is None and health.status in ("ok", "degraded")
