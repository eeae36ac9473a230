"""What travels between a service and its clients, in the shapes of FlashInfer-Bench's serve API.

Fields that are not of that API are ours and have defaults, so that its clients need not know them. Unknown fields are
passed over on both sides, as that API's own models do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from ptxbench.records import (
    Build,
    DeviceIdentity,
    Evidence,
    InfrastructureFault,
    InstructionEvidence,
    RunEvidence,
    SafetyEvidence,
    Sha256,
    Verdict,
)
from ptxbench.trace.base import Text
from ptxbench.trace.solution import BuildSpec, Solution, SourceFile

TaskStatus = Literal["pending", "running", "completed", "failed"]
TaskKind = Literal["evaluate", "profile", "sanitize", "debug"]
FINISHED: frozenset[TaskStatus] = frozenset({"completed", "failed"})
SafetyToolName = Literal["memcheck", "initcheck", "synccheck", "racecheck"]
MOST_WORKLOADS = 1000
MOST_WAIT_S = 3600.0
"""The longest long-poll, as in FlashInfer-Bench's API."""
Name = Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.:-]*$")]
"""A task id that a client chose. ``.`` and ``..`` would be another path in an address."""
_OPEN = ConfigDict(extra="ignore", frozen=True)
_FIRST_FAULT = Field(fail_fast=True)
"""Of a list in a request only the first fault is told: all of 4 MiB took 3 GB and 24 s of the process that answers."""


class Shape(BaseModel):
    """Base of what travels: frozen, and open to fields of other versions."""

    model_config = _OPEN


class OpenSource(SourceFile):
    """``SourceFile`` with fields of other versions passed over, and without its look at Python.

    A service runs no Python of a client's, and parsing one body of it took 18 s and 1.8 GB of the process that answers.
    """

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="after")
    def _python_parses(self) -> Self:
        return self


class OpenSpec(BuildSpec):
    """``BuildSpec`` with fields of other versions passed over."""

    model_config = ConfigDict(extra="ignore")

    target_hardware: Annotated[tuple[Text, ...], Field(min_length=1), _FIRST_FAULT]
    dependencies: Annotated[tuple[Text, ...], _FIRST_FAULT] = ()


class OpenSolution(Solution):
    """``Solution`` with fields of other versions passed over."""

    model_config = ConfigDict(extra="ignore")

    spec: OpenSpec
    sources: Annotated[tuple[OpenSource, ...], Field(min_length=1, max_length=100), _FIRST_FAULT]


class Submission(Shape):
    """The body of ``POST /evaluate``, ``/profile``, ``/sanitize`` and ``/debug``."""

    solution: OpenSolution
    workload_uuids: Annotated[list[str], Field(max_length=MOST_WORKLOADS), _FIRST_FAULT] | None = None
    """None: all workloads of the definition."""
    task_id: Name | None = None
    """The task's id; None: one is made from the content, so that the same content is one task."""
    atol: float | None = None
    rtol: float | None = None
    """Refused unless they are the case's own: verdicts are by the protocol's rule alone."""
    sanitizer_types: Annotated[list[SafetyToolName], _FIRST_FAULT] | None = None
    """Of ``/sanitize``, each once; None: memcheck."""
    arch: str | None = None
    """Architecture to build for; None: of ``target_hardware`` where it names one, else the service's."""
    complete: bool = True
    """Of ``/evaluate``: with memcheck and instruction counts, as a turn of the benchmark has them."""
    case_sha256: Sha256 | None = None
    """``ptxbench.profiler.wire.case_digest`` of the client's own case; the service refuses where its case differs."""
    cubin_sha256: Sha256 | None = None
    """Device code of the client's own build; the task fails where the service's compiler makes another."""
    nvcc: str = ""
    """The client's compiler, for the message then."""
    client: Annotated[str, StringConstraints(max_length=128)] = ""
    """Who shares the service: those that wait are served in turn."""
    priority: Literal["interactive", "bulk"] = "interactive"


class Submitted(Shape):
    """The answer to a submission."""

    task_id: str
    normalized_solution_name: str
    """``NAME_HASH``: the name that traces of the task carry."""
    status: TaskStatus = "pending"
    created: bool = True
    """False: the same content was submitted before."""


class TaskLog(Shape):
    """What a tool said of one workload."""

    definition: str
    workload: dict[str, Any]
    solution: str
    log: str


class TaskResult(Shape):
    """What a task found on one workload: the part that FlashInfer-Bench's traces have no place for."""

    workload_uuid: str
    arch: str
    origin: Literal["measured", "replayed", "none"] = "none"
    device: str | None = None
    measured_at: str | None = None
    verdict: Verdict | None = None
    """Of ``evaluate`` and ``debug``."""
    instructions: InstructionEvidence | None = None
    """Of ``profile``."""
    safety: tuple[SafetyEvidence, ...] = ()
    """Of ``sanitize`` and ``debug``."""
    message: str = ""
    """Why there is nothing else, for example what the compiler said."""
    stages_ms: dict[str, float] = Field(default_factory=dict)


class TaskDetail(Shape):
    """The evidence behind a result. Only in answers to ``?detail=true``."""

    build: Build | None = None
    evidence: Evidence | None = None
    run: RunEvidence | None = None
    """Of ``debug``: where the call ended, what it printed, where its threads wait."""


class Task(Shape):
    """The answer of ``GET /tasks/{id}`` and, as a list, of ``POST /tasks/batch``."""

    task_id: str
    status: TaskStatus
    definition: str
    solution: str
    traces: list[dict[str, Any]] | None = None
    """FlashInfer-Trace, one for each workload whose outcome that schema has a word for."""
    error: str | None = None
    kind: TaskKind = "evaluate"
    logs: list[TaskLog] | None = None
    results: list[TaskResult] = Field(default_factory=list)
    details: list[TaskDetail] | None = None
    fault: InfrastructureFault | None = None
    """Why it failed, where that is the machinery's fault. The same submission tries it again."""

    @property
    def finished(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in FINISHED


class BatchRequest(Shape):
    """The body of ``POST /tasks/batch``."""

    task_ids: Annotated[list[str], Field(max_length=10_000), _FIRST_FAULT]
    timeout: Annotated[float, Field(ge=0, le=MOST_WAIT_S)] = 0.0
    """Seconds to wait until all of them have finished."""


class WorkerInfo(Shape):
    """A device, or what stands in for one."""

    device: str
    healthy: bool


class ServiceHealth(Shape):
    """The answer of ``GET /health``."""

    status: Literal["ok", "degraded", "unavailable", "draining"]
    workers: list[WorkerInfo]
    queue_size: int
    instance_id: str = ""
    dataset_id: str = ""
    started_at: float = 0.0
    accepting: bool = True
    healthy_workers: int = 0
    total_workers: int = 0
    active_tasks: int = 0
    version: str = ""
    profiler: str = ""
    """Its kind, for example ``local`` or ``replay``."""
    origin: Literal["measured", "replayed"] | None = None
    """None as long as the evaluation process starts."""
    device: DeviceIdentity | None = None
    devices: list[dict[str, Any]] = Field(default_factory=list)
    """Device by device, where the profiler tells them apart."""
    message: str = ""


class DefinitionInfo(Shape):
    """One of ``GET /definitions``."""

    name: str
    description: str | None = None
