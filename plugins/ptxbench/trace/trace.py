"""Trace: the evaluation of a solution on a workload, or a workload alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from ptxbench.records.base import Real
from ptxbench.trace.base import FileName, Text, TraceModel, broken
from ptxbench.trace.workload import Workload


class EvaluationStatus(StrEnum):
    """The seven outcomes of the schema."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    COMPILE_ERROR = "COMPILE_ERROR"
    TIMEOUT = "TIMEOUT"


def _non_negative(value: float) -> float:
    if value < 0:
        raise broken((), "a number that is not negative, or NaN", repr(value))
    return value


ErrorSize = Annotated[Real, AfterValidator(_non_negative)]
Amount = Annotated[int, Field(ge=0)]
Latency = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Correctness(TraceModel):
    """Errors against the reference; infinite or NaN when the outputs are."""

    max_relative_error: ErrorSize = 0.0
    max_absolute_error: ErrorSize = 0.0
    extra: dict[str, JsonValue] | None = None


class KernelProfile(TraceModel):
    """One kernel launch as CUPTI reports it."""

    name: str
    duration_ns: Amount
    grid: tuple[Amount, Amount, Amount]
    block: tuple[Amount, Amount, Amount]
    registers_per_thread: Amount
    static_shared_memory: Amount
    dynamic_shared_memory: Amount
    shared_memory_executed: Amount
    local_memory_per_thread: Amount
    local_memory_total: Amount


class Performance(TraceModel):
    """Latencies in milliseconds; ``speedup_factor`` is reference over solution."""

    latency_ms: Latency = 0.0
    reference_latency_ms: Latency = 0.0
    speedup_factor: Latency = 0.0
    profile: tuple[KernelProfile, ...] | None = None


class Environment(TraceModel):
    """Where it was measured."""

    hardware: Text
    libs: dict[str, str] = Field(default_factory=dict)


class Evaluation(TraceModel):
    """One result. PASSED carries correctness and performance, INCORRECT_NUMERICAL correctness, all others neither."""

    status: EvaluationStatus
    environment: Environment
    timestamp: Text
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None

    @model_validator(mode="after")
    def _fields_fit_status(self) -> Self:
        passed = self.status is EvaluationStatus.PASSED
        wanted = {
            "correctness": passed or self.status is EvaluationStatus.INCORRECT_NUMERICAL,
            "performance": passed,
        }
        for name, present in wanted.items():
            if (getattr(self, name) is not None) != present:
                expected = f"{'a' if present else 'no'} {name} with status {self.status.value}"
                raise broken((name,), expected, "none" if present else "one")
        return self


class Trace(TraceModel):
    """One line of a ``.jsonl`` file. Without solution and evaluation it is a workload trace."""

    definition: FileName
    workload: Workload
    solution: FileName | None = None
    evaluation: Evaluation | None = None

    @property
    def is_workload(self) -> bool:
        """Whether it describes a workload and no result."""
        return self.solution is None and self.evaluation is None
