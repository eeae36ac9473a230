"""From turns to cells: the rates of PROTOCOL 5 per model x case x architecture, with what they rest on. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field

from ptxbench.errors import InputError
from ptxbench.records import (
    PASSING_ENDS,
    EndReason,
    Evidence,
    Outcome,
    Record,
    Safe,
    Target,
    TrajectoryEnd,
    TurnKey,
    TurnRecord,
    Verdict,
)
from ptxbench.report.calls import Calls, calls_of
from ptxbench.report.mixture import mixture_of
from ptxbench.verdict import Rule
from ptxbench.verdict.metrics import (
    FAST_P,
    LIMITS,
    TARGET_SPEEDUP,
    Share,
    TurnResult,
    best_speedup,
    correctness_rate,
    fast_p,
    fast_p_inst,
    target_best_speedup,
    target_rate,
)

EvidenceOrigin = Literal["measured", "replayed", "none"]
Name = TypeVar("Name", bound=str)


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


def turn_results(records: Iterable[TurnRecord]) -> list[TurnResult]:
    """Return what the metrics need of the turns of one cell."""
    rows = list(records)
    last: dict[str, int] = {}
    for row in rows:
        last[row.key.trajectory_id] = max(row.key.turn, last.get(row.key.trajectory_id, 0))
    return [_turn_result(row, is_last=last[row.key.trajectory_id] == row.key.turn) for row in rows]


def _turn_result(record: TurnRecord, *, is_last: bool) -> TurnResult:
    verdict = record.verdict
    reached = verdict.correct and verdict.speedup is not None and verdict.speedup >= TARGET_SPEEDUP
    return TurnResult(
        trajectory=record.key.trajectory_id,
        turn=record.key.turn,
        correct=verdict.correct,
        target=verdict.target,
        speedup=verdict.speedup if verdict.correct else None,
        ended_by_target=is_last and reached,
        excluded=verdict.outcome is Outcome.INFRASTRUCTURE_ERROR,
    )


def summarize(
    records: Iterable[TurnRecord],
    planned: Mapping[CellKey, CellPlan] | None = None,
    ends: Iterable[TrajectoryEnd] = (),
) -> tuple[Cell, ...]:
    """Return the cells of these turns, sorted by model, architecture and case. ``ends`` are of their trajectories.

    Cells without a plan count as planned what happened. A cell without any record has no row. Raises InputError for two
    different records of one turn.
    """
    groups: dict[CellKey, list[TurnRecord]] = defaultdict(list)
    taken: dict[tuple[str, str], int] = defaultdict(int)
    for row in unique_records(records):
        key = row.key
        groups[CellKey(key.model, key.case, key.arch)].append(row)
        taken[key.model, key.arch] = max(taken[key.model, key.arch], key.turn + 1)
    ended: dict[CellKey, list[TrajectoryEnd]] = defaultdict(list)
    for end in ends:
        ended[CellKey(end.key.model, end.key.case, end.key.arch)].append(end)
    cells = []
    for cell, rows in groups.items():
        keys = [row.key for row in rows] + [end.key for end in ended[cell]]
        trajectories = len({key.trajectory_id for key in keys})
        plan = (planned or {}).get(cell) or CellPlan(trajectories, taken[cell.model, cell.arch])
        plan = plan._replace(trajectories=max(plan.trajectories, trajectories))
        cells.append(_cell(cell, rows, plan, ended[cell]))
    return tuple(sorted(cells, key=lambda cell: (cell.model, cell.arch, cell.case)))


def plans_of(keys: Iterable[TurnKey]) -> dict[CellKey, CellPlan]:
    """Return what these turns were meant to be, cell by cell, whether or not they happened.

    The last turn of each trajectory is enough.
    """
    trajectories: dict[CellKey, set[str]] = {}
    turns: dict[CellKey, int] = {}
    for key in keys:
        cell = CellKey(key.model, key.case, key.arch)
        trajectories.setdefault(cell, set()).add(key.trajectory_id)
        turns[cell] = max(turns.get(cell, 0), key.turn + 1)
    return {cell: CellPlan(len(ids), turns[cell]) for cell, ids in trajectories.items()}


def unique_records(records: Iterable[TurnRecord]) -> list[TurnRecord]:
    """Return each turn once, in order of its key. Raises InputError for two different records of one turn."""
    by_key: dict[tuple[str, str, str, int, int, int], TurnRecord] = {}
    for record in records:
        key = record.key
        place = (key.model, key.arch, key.case, key.variant, key.trajectory, key.turn)
        if by_key.setdefault(place, record) != record:
            raise InputError(
                f"turn {record.key}: expected one record, found two that differ; report each run by itself"
            )
    return [by_key[place] for place in sorted(by_key)]


def limits_of(turns: int) -> tuple[int, ...]:
    """Return the turn limits that can be reported when each trajectory was given ``turns``, at least 1."""
    return tuple(sorted({limit for limit in LIMITS if limit <= turns} | {turns}))


def used_evidence(record: TurnRecord) -> Evidence | None:
    """Return the evidence that the verdict rests on: none where the record's evidence is of something else."""
    return None if record.verdict.rule == Rule.EVIDENCE_HASH_MISMATCH else record.evidence


def _unasked(
    rows: Iterable[TurnRecord], ends: Iterable[TrajectoryEnd], turns: int
) -> list[tuple[TurnResult, EndReason]]:
    """The turns that a spent budget, a stop or a missing device kept from happening, as excluded ones, and which."""
    known = {(row.key.trajectory_id, row.key.turn) for row in rows}
    return [
        (
            TurnResult(end.key.trajectory_id, turn, correct=False, target=Target.UNKNOWN, speedup=None, excluded=True),
            end.reason,
        )
        for end in ends
        if end.reason in PASSING_ENDS
        for turn in range(end.key.turn, turns)
        if (end.key.trajectory_id, turn) not in known
    ]


def _cell(key: CellKey, rows: Sequence[TurnRecord], plan: CellPlan, ends: Sequence[TrajectoryEnd]) -> Cell:
    missing = _unasked(rows, ends, plan.turns)
    unasked = [turn for turn, _ in missing]
    verdicts = [row.verdict for row in rows]
    used = [(row, used_evidence(row)) for row in rows]
    evidence = [item for _, item in used if item is not None]
    return Cell(
        model=key.model,
        case=key.case,
        arch=key.arch,
        trajectories=plan.trajectories,
        turns_per_trajectory=plan.turns,
        turns=len(rows),
        excluded=sum(verdict.outcome is Outcome.INFRASTRUCTURE_ERROR for verdict in verdicts),
        unasked=len(unasked),
        pauses=_counted(reason for _, reason in missing),
        context_exhausted=sum(end.reason == "context_exhausted" for end in ends),
        outcomes=_counted(verdict.outcome.value for verdict in verdicts),
        unknown_outcomes=sum(verdict.outcome is Outcome.UNKNOWN for verdict in verdicts),
        unknown_targets=sum(verdict.correct and verdict.target is Target.UNKNOWN for verdict in verdicts),
        unsafe=sum(verdict.safe is Safe.NO for verdict in verdicts),
        flags=_counted(flag for verdict in verdicts for flag in verdict.flags),
        evidence_origins=_counted("none" if item is None else row.evidence_origin for row, item in used),
        devices=tuple(sorted({item.device.name for item in evidence})),
        measured=tuple(sorted({item.measured_at[: len("YYYY-MM-DD")] for item in evidence})),
        baselines=_baselines(evidence),
        calls=calls_of(rows),
        mixed=mixture_of(rows),
        limits=tuple(_at_limit(rows, unasked, limit, plan.trajectories) for limit in limits_of(plan.turns)),
    )


def _counted(names: Iterable[Name]) -> dict[Name, int]:
    return dict(sorted(Counter(names).items()))


def _baselines(evidence: Iterable[Evidence]) -> tuple[BaselineUse, ...]:
    measured = [item.run.baseline for item in evidence if item.run.baseline is not None]
    used = {(baseline.library, baseline.version, baseline.call) for baseline in measured}
    return tuple(BaselineUse(library=library, version=version, call=call) for library, version, call in sorted(used))


def _at_limit(records: Sequence[TurnRecord], unasked: Sequence[TurnResult], limit: int, trajectories: int) -> AtLimit:
    rows = [*turn_results(records), *unasked]
    verdicts = [record.verdict for record in records if record.key.turn < limit]
    outcome_unknown = sum(verdict.outcome is Outcome.UNKNOWN for verdict in verdicts)
    return AtLimit(
        limit=limit,
        correct=_rate(correctness_rate(rows, limit, trajectories), outcome_unknown),
        target=_rate(target_rate(rows, limit, trajectories), sum(_may_be_target(verdict) for verdict in verdicts)),
        best_speedup=best_speedup(rows, limit),
        target_best_speedup=target_best_speedup(rows, limit),
        fast_p=tuple(
            FastP(
                p=p,
                any=_rate(fast_p(rows, p, limit, trajectories), outcome_unknown),
                inst=_rate(
                    fast_p_inst(rows, p, limit, trajectories),
                    sum(_may_be_target(verdict, p) for verdict in verdicts),
                ),
            )
            for p in FAST_P
        ),
    )


def _may_be_target(verdict: Verdict, p: float = 0.0) -> bool:
    """Whether an unknown keeps this turn from counting in a target-instruction rate above ``p``."""
    if verdict.target is not Target.UNKNOWN:
        return False
    if verdict.outcome is Outcome.CORRECT:
        return p == 0.0 or (verdict.speedup is not None and verdict.speedup > p)
    return verdict.outcome is Outcome.UNKNOWN


def _rate(share: Share, unknown: int) -> Rate:
    return Rate(
        hits=share.hits,
        turns=share.turns,
        unneeded=share.unneeded,
        unknown=unknown,
        value=share.value,
        value_of_needed=share.value_of_needed,
    )
