"""One row of a report: the rates of a model x case x architecture, each with what it can be recomputed from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from ptxbench.records import Record
from ptxbench.records.base import Amount, Count, Number, Speedup, Turns
from ptxbench.report.calls import Calls

EvidenceOrigin = Literal["measured", "replayed", "none"]


class CellKey(NamedTuple):
    """What one row of a report is about."""

    model: str
    case: str
    arch: str


class CellPlan(NamedTuple):
    """What a run set out to do in one cell; N follows from it, not from what happened."""

    trajectories: int
    turns: int
    """Turns that each trajectory was given."""
    variants: Mapping[int, int] = {}
    """Prompt variant -> trajectories; empty where that is not known."""


Share = Annotated[float, Field(ge=0, le=1)]


class VariantPlan(Record):
    """The trajectories of one prompt variant in a cell."""

    variant: Number
    trajectories: Count
    """Planned."""


class Interval(Record):
    """Ends of a confidence interval; docs/metrics.md says how it is made."""

    low: float
    high: float


class Rate(Record):
    """A share of turns with everything that it can be recomputed from."""

    hits: Count
    turns: Count
    """Nominal N: trajectories x limit, less those that a fault excluded, or that were not asked for or selected."""
    unneeded: Count
    """Turns within N that never ran because their trajectory had already reached the target."""
    unknown: Count
    """Turns within N that are no hit and might be one: their outcome, target indicator or speed is unknown."""
    value: Share
    """``hits / turns``, 0..1."""
    value_of_needed: float
    """``hits / (turns - unneeded)``, 0..1."""
    interval: Interval | None = None
    """Of ``value``; None for fewer than two trajectories, and in documents of version 1."""
    interval_of_needed: Interval | None = None
    """Of ``value_of_needed``."""

    @model_validator(mode="after")
    def _counts_fit(self) -> Self:
        if self.hits > self.turns:
            raise ValueError(f"{self.hits} hits of {self.turns} turns")
        return self


class FastP(Record):
    """Fast_p and Fast_p^Inst at one threshold."""

    p: Amount
    any: Rate
    inst: Rate


class AtLimit(Record):
    """The metrics of a cell over ``turn < limit``."""

    limit: Turns
    correct: Rate
    target: Rate
    best_speedup: Speedup | None
    target_best_speedup: Speedup | None
    best_speedup_interval: Interval | None = None
    """0 at its low end says that some resamples hold no speedup at all."""
    target_best_speedup_interval: Interval | None = None
    fast_p: Annotated[tuple[FastP, ...], Field(min_length=1)]


class FastestTurn(Record):
    """The turn of a cell's best speedup: its latency with what that is worth."""

    turn: str
    """Identifier, as in ``turns``."""
    speedup: Speedup
    latency_ms: Amount
    latency_interval_ms: Interval | None = None
    """95% interval of the median within the evaluation; None in verdicts that have none."""
    baseline_ms: Amount | None = None
    roofline_share: Amount | None = None
    """Physical floor over the latency, 0..1; None where no ceiling is known."""
    useful_share: Amount | None = None
    """FLOPs of the executed target matrix instructions over FLOPs of the workload; None where not counted."""


class BaselineUse(Record):
    """A library call that speedups of the cell divide by."""

    library: str
    version: str
    call: str


class Cell(Record):
    """One row of a report."""

    model: str
    case: str
    arch: str
    trajectories: Annotated[Count, Field(ge=1)]
    """Planned, or, where no plan is known, as many as have a turn."""
    turns_per_trajectory: Turns
    """Planned, or, where no plan is known, as many as any trajectory of the model on this architecture took."""
    turns: Count
    """Turns that have a record."""
    imported: Count = 0
    """Turns of these whose verdicts somebody else gave: nothing was measured or judged here."""
    excluded: Count
    """Turns of these that an infrastructure fault kept from being judged."""
    unasked: Count = 0
    """Further turns that a spent budget, a stop or a missing device kept from happening; they are not in N either."""
    pauses: dict[str, Count] = Field(default_factory=dict)
    """``unasked`` by the reason of the end that they lie beyond: ``budget``, ``stopped``, ``unmeasured``."""
    unselected: Count = 0
    """Further turns of the trajectories that the session did not select; they are not in N either."""
    context_exhausted: Count = 0
    """Trajectories that ended because the conversation no longer fitted the model."""
    outcomes: dict[str, Count]
    unknown_outcomes: Count
    unknown_targets: Count
    """Correct turns whose target indicator is unknown."""
    unknown_speeds: Count = 0
    """Correct turns whose speed nobody measured."""
    unsafe: Count
    """Turns in which a sanitizer or a guard band found undefined behaviour."""
    missing_layers: dict[str, Count] = Field(default_factory=dict)
    """Layers of containment -> turns whose candidate ran without; empty also where older evidence does not tell."""
    flags: dict[str, Count]
    evidence_origins: dict[EvidenceOrigin, Count]
    devices: tuple[str, ...]
    measured: tuple[str, ...]
    """Days of the measurements, UTC."""
    baselines: tuple[BaselineUse, ...]
    fastest: FastestTurn | None = None
    """None where no turn has a speedup and a latency, and in documents older than this field."""
    calls: Calls | None = None
    """None where no language model was asked."""
    variants: tuple[VariantPlan, ...] = ()
    """Sorted; empty where no plan is known, and in documents older than this field."""
    mixed: tuple[str, ...] = ()
    """What was not the same in all calls of the cell, with the values: settings, pack, texts. A cell of one experiment
    has none."""
    limits: Annotated[tuple[AtLimit, ...], Field(min_length=1)]

    @property
    def key(self) -> CellKey:
        """What the row is about."""
        return CellKey(self.model, self.case, self.arch)
