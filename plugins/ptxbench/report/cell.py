"""One row of a report: the rates of a model x case x architecture, each with what it can be recomputed from."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from ptxbench.records import Record
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


class Interval(Record):
    """Ends of a confidence interval; docs/metrics.md says how it is made."""

    low: float
    high: float


class Rate(Record):
    """A share of turns with everything that it can be recomputed from."""

    hits: int
    turns: int
    """Nominal N: trajectories x limit, less turns excluded for infrastructure faults or a spent budget."""
    unneeded: int
    """Turns within N that never ran because their trajectory had already reached the target."""
    unknown: int
    """Turns within N that are no hit and might be one: their outcome or their target indicator is unknown."""
    value: float
    """``hits / turns``, 0..1."""
    value_of_needed: float
    """``hits / (turns - unneeded)``, 0..1."""
    interval: Interval | None = None
    """Of ``value``; None for fewer than two trajectories, and in documents of version 1."""
    interval_of_needed: Interval | None = None
    """Of ``value_of_needed``."""


class FastP(Record):
    """Fast_p and Fast_p^Inst at one threshold."""

    p: float
    any: Rate
    inst: Rate


class AtLimit(Record):
    """The metrics of a cell over ``turn < limit``."""

    limit: int
    correct: Rate
    target: Rate
    best_speedup: float | None
    target_best_speedup: float | None
    best_speedup_interval: Interval | None = None
    """0 at its low end says that some resamples hold no speedup at all."""
    target_best_speedup_interval: Interval | None = None
    fast_p: tuple[FastP, ...]


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
    trajectories: int
    """Planned, or, where no plan is known, as many as have a turn."""
    turns_per_trajectory: int
    """Planned, or, where no plan is known, as many as any trajectory of the model on this architecture took."""
    turns: int
    """Turns that have a record."""
    imported: int = 0
    """Turns of these whose verdicts somebody else gave: nothing was measured or judged here."""
    excluded: int
    """Turns of these that an infrastructure fault kept from being judged."""
    unasked: int = 0
    """Further turns that a spent budget, a stop or a missing device kept from happening; they are not in N either."""
    pauses: dict[str, int] = Field(default_factory=dict)
    """``unasked`` by the reason of the end that they lie beyond: ``budget``, ``stopped``, ``unmeasured``."""
    context_exhausted: int = 0
    """Trajectories that ended because the conversation no longer fitted the model."""
    outcomes: dict[str, int]
    unknown_outcomes: int
    unknown_targets: int
    """Correct turns whose target indicator is unknown."""
    unsafe: int
    """Turns in which a sanitizer or a guard band found undefined behaviour."""
    flags: dict[str, int]
    evidence_origins: dict[EvidenceOrigin, int]
    devices: tuple[str, ...]
    measured: tuple[str, ...]
    """Days of the measurements, UTC."""
    baselines: tuple[BaselineUse, ...]
    calls: Calls | None = None
    """None where no language model was asked."""
    mixed: tuple[str, ...] = ()
    """What was not the same in all calls of the cell, with the values: settings, pack, texts. A cell of one experiment
    has none."""
    limits: tuple[AtLimit, ...]

    @property
    def key(self) -> CellKey:
        """What the row is about."""
        return CellKey(self.model, self.case, self.arch)
