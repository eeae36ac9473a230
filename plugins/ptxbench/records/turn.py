"""One turn on disk: the unit of resume, cache and audit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ptxbench.records.base import Amount, Number, Record, Sha256
from ptxbench.records.build import Build
from ptxbench.records.conversation import Exchange
from ptxbench.records.evidence import Evidence
from ptxbench.records.verdict import Verdict


class TurnKey(Record):
    """Which turn. ``str()`` is the pytest parameter id: ``MODEL-CASE-ARCH-vV-tT-turnN``."""

    model: str
    case: str
    arch: str
    variant: Number
    trajectory: Number
    turn: Number

    def __str__(self) -> str:
        return f"{self.trajectory_id}-turn{self.turn}"

    @property
    def trajectory_id(self) -> str:
        """The trajectory this turn belongs to; turns of one trajectory are never split over workers."""
        return f"{self.model}-{self.case}-{self.arch}-v{self.variant}-t{self.trajectory}"


class InfrastructureFault(Record):
    """A fault that is nobody's: typed, retried by the engine, never blamed on the candidate."""

    kind: str
    message: str


class TurnRecord(Record):
    """All that is known of one turn. The source lies beside it as ``.cu``; ``source_sha256`` names it."""

    schema_version: Literal[1] = 1
    key: TurnKey
    definition: str
    workload_uuid: str
    variant_name: str
    origin: str
    """Where the source came from, for example ``reference`` or ``file``."""
    source_sha256: Sha256 | None
    build: Build | None
    evidence: Evidence | None
    evidence_origin: Literal["measured", "replayed", "none"]
    verdict: Verdict
    fault: InfrastructureFault | None = None
    min_speedup: Amount | None = None
    """The floor that the model itself declares for this case, as ``reference`` does."""
    exchange: Exchange | None = None
    """The model call that the source came from; None for sources that no language model was asked for."""
    follows: Number | None = None
    """The earlier turn whose reply the messages of ``exchange`` follow; None for the first of a conversation.

    Not always the turn before: one that an infrastructure fault kept from being judged is no part of the conversation,
    also if it is done after all when the run is resumed.
    """
    stages_ms: dict[str, Amount] = Field(default_factory=dict)


class PendingReply(Record):
    """A model's reply whose turn is not finished: stored before anything is done with it, so that it is paid once."""

    schema_version: Literal[1] = 1
    key: TurnKey
    exchange: Exchange


EndReason = Literal["target_reached", "context_exhausted", "budget", "unmeasured", "stopped"]
PASSING_ENDS: frozenset[EndReason] = frozenset({"budget", "unmeasured", "stopped"})
"""Reasons that say nothing of the model: its turns were not asked for, or their kernels not measured, in this session.
Resuming the run goes on."""


class TrajectoryEnd(Record):
    """Why a trajectory has fewer turns than it was given."""

    schema_version: Literal[1] = 1
    key: TurnKey
    """The first turn that does not happen."""
    reason: EndReason
    """PASSING_ENDS hold until the run is resumed, the others for good."""
    message: str
    exchange: Exchange | None = None
    """The call that found the context exhausted; it has no reply."""
