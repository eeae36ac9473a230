"""The verdict of a turn: three answers kept apart, each with the rule that gave it."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from ptxbench.records.base import Amount, Count, Real, Record, Speedup


class Outcome(StrEnum):
    """One per turn (PROTOCOL 4)."""

    EXTRACTION_ERROR = "extraction_error"
    SCREENED = "screened"
    COMPILE_ERROR = "compile_error"
    MEMORY_ERROR = "memory_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    WRONG_SHAPE_OR_DTYPE = "wrong_shape_or_dtype"
    NUMERICAL_ERROR = "numerical_error"
    CORRECT = "correct"
    UNKNOWN = "unknown"
    """No device ran it and no stored evidence matches its hash: neither pass nor fail."""
    INFRASTRUCTURE_ERROR = "infrastructure_error"


class Target(StrEnum):
    """Whether a selected instruction of the architecture ran (PROTOCOL 4.6)."""

    EXECUTED = "executed"
    NOT_EXECUTED = "not_executed"
    UNKNOWN = "unknown"


class Safe(StrEnum):
    """Whether the sanitizers found undefined behaviour."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    NOT_RUN = "not_run"


class Verdict(Record):
    """What the judge says of one turn. Pure function of case, build and evidence."""

    schema_version: Literal[1] = 1
    outcome: Outcome
    rule: str
    """Identifier of the rule that decided the outcome; listed in docs/verdict-rules.md."""
    message: str
    target: Target
    target_rule: str
    target_message: str
    target_present: bool | None = None
    """Static: a selected family is in the SASS of the built object. None when it could not be inspected."""
    families: dict[str, Count] = Field(default_factory=dict)
    """Selected opcode families -> predicate-enabled thread executions, or static lines when nothing ran."""
    safe: Safe
    safe_message: str = ""
    latency_ms: Amount | None = None
    """0 where the clock saw nothing run: ``implausible``, and without a speedup."""
    latency_source: Literal["cupti", "oracle_clock"] | None = None
    latency_interval_ms: tuple[Amount, Amount] | None = None
    """95% interval of the latency within this evaluation (docs/metrics.md). None without a latency, and in verdicts
    older than this field."""
    baseline_ms: Amount | None = None
    baseline_interval_ms: tuple[Amount, Amount] | None = None
    """The same of the library."""
    speedup: Speedup | None = None
    relative_rms: Real | None = None
    """Largest scale-relative error over outputs and checked calls."""
    mismatch_share: Real | None = None
    """Largest share of elements beyond tolerance over outputs and checked calls."""
    roofline_share: Amount | None = None
    """Physical floor of the workload on this device over the latency, 0..1."""
    useful_share: Amount | None = None
    """FLOPs of the executed matrix instructions over FLOPs of the workload; None when not countable."""
    flags: tuple[str, ...] = ()
    """Remarks that do not change the outcome, for example ``implausible`` (then there is no speedup)."""

    @property
    def correct(self) -> bool:
        """Functional correctness, the C of PROTOCOL 5."""
        return self.outcome is Outcome.CORRECT
