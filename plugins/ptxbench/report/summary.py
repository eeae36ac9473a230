"""From turns to cells: the rates of PROTOCOL 5 per model x case x architecture, with what they rest on. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from ptxbench.agent.store import IMPORTED
from ptxbench.errors import InputError
from ptxbench.records import (
    Evidence,
    Outcome,
    Safe,
    Target,
    TrajectoryEnd,
    TurnKey,
    TurnRecord,
)
from ptxbench.report.calls import calls_of
from ptxbench.report.cell import BaselineUse, Cell, CellKey, CellPlan, FastestTurn, Interval, VariantPlan
from ptxbench.report.hits import speed_unknown
from ptxbench.report.limits import at_limits
from ptxbench.report.mixture import mixture_of
from ptxbench.report.results import cell_key, turn_results, unasked_turns, unselected_turns
from ptxbench.verdict import Rule
from ptxbench.verdict.metrics import LIMITS

Name = TypeVar("Name", bound=str)


def summarize(
    records: Iterable[TurnRecord],
    planned: Mapping[CellKey, CellPlan] | None = None,
    ends: Iterable[TrajectoryEnd] = (),
    unselected: Iterable[TurnKey] = (),
) -> tuple[Cell, ...]:
    """Return the cells of these turns, sorted by model, architecture and case.

    ``ends`` are of their trajectories, and so are the turns ``unselected``, which are no part of the session. Cells
    without a plan count as planned what happened. A cell without any record has no row. Raises InputError for two
    different records of one turn.
    """
    groups: dict[CellKey, list[TurnRecord]] = defaultdict(list)
    taken: dict[tuple[str, str], int] = defaultdict(int)
    for row in unique_records(records):
        key = row.key
        groups[cell_key(key)].append(row)
        taken[key.model, key.arch] = max(taken[key.model, key.arch], key.turn + 1)
    ended: dict[CellKey, list[TrajectoryEnd]] = defaultdict(list)
    for end in ends:
        ended[cell_key(end.key)].append(end)
    others: dict[CellKey, list[TurnKey]] = defaultdict(list)
    for other in unselected:
        others[cell_key(other)].append(other)
    cells = []
    for cell, rows in groups.items():
        keys = [row.key for row in rows] + [end.key for end in ended[cell]]
        trajectories = len({key.trajectory_id for key in keys})
        plan = (planned or {}).get(cell) or CellPlan(trajectories, taken[cell.model, cell.arch])
        plan = plan._replace(trajectories=max(plan.trajectories, trajectories))
        cells.append(_cell(cell, rows, plan, _Absent(ended[cell], others[cell])))
    return tuple(sorted(cells, key=lambda cell: (cell.model, cell.arch, cell.case)))


def plans_of(keys: Iterable[TurnKey]) -> dict[CellKey, CellPlan]:
    """Return what these turns were meant to be, cell by cell, whether or not they happened.

    The last turn of each trajectory is enough.
    """
    trajectories: dict[CellKey, set[tuple[int, int]]] = {}
    turns: dict[CellKey, int] = {}
    for key in keys:
        cell = cell_key(key)
        trajectories.setdefault(cell, set()).add((key.variant, key.trajectory))
        turns[cell] = max(turns.get(cell, 0), key.turn + 1)
    return {
        cell: CellPlan(len(places), turns[cell], dict(Counter(variant for variant, _ in places)))
        for cell, places in trajectories.items()
    }


def unselected_beside(selected: Iterable[TurnKey]) -> list[TurnKey]:
    """Return the turns that ``plans_of`` counts for the trajectories of these turns and that are none of them."""
    keys = list(selected)
    plans = plans_of(keys)
    known = {(key.trajectory_id, key.turn) for key in keys}
    return [
        key.model_copy(update={"turn": turn})
        for key in {key.trajectory_id: key for key in keys}.values()
        for turn in range(plans[cell_key(key)].turns)
        if (key.trajectory_id, turn) not in known
    ]


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


class _Absent(NamedTuple):
    """Why planned turns of a cell have no record."""

    ends: Sequence[TrajectoryEnd]
    unselected: Sequence[TurnKey]


def _cell(key: CellKey, rows: Sequence[TurnRecord], plan: CellPlan, absent: _Absent) -> Cell:
    missing = unasked_turns(rows, absent.ends, plan.turns, absent.unselected)
    results = [*turn_results(rows), *(turn.result for turn in missing), *unselected_turns(absent.unselected)]
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
        imported=sum(row.origin == IMPORTED for row in rows),
        excluded=sum(verdict.outcome is Outcome.INFRASTRUCTURE_ERROR for verdict in verdicts),
        unasked=len(missing),
        pauses=_counted(turn.reason for turn in missing),
        unselected=len(absent.unselected),
        context_exhausted=sum(end.reason == "context_exhausted" for end in absent.ends),
        outcomes=_counted(verdict.outcome.value for verdict in verdicts),
        unknown_outcomes=sum(verdict.outcome is Outcome.UNKNOWN for verdict in verdicts),
        unknown_targets=sum(verdict.correct and verdict.target is Target.UNKNOWN for verdict in verdicts),
        unknown_speeds=sum(verdict.correct and speed_unknown(verdict) for verdict in verdicts),
        unsafe=sum(verdict.safe is Safe.NO for verdict in verdicts),
        missing_layers=_counted(
            layer for item in evidence if item.run.containment for layer in item.run.containment.missing
        ),
        flags=_counted(flag for verdict in verdicts for flag in verdict.flags),
        evidence_origins=_counted("none" if item is None else row.evidence_origin for row, item in used),
        devices=tuple(sorted({item.device.name for item in evidence})),
        measured=tuple(sorted({item.measured_at[: len("YYYY-MM-DD")] for item in evidence})),
        baselines=_baselines(evidence),
        fastest=_fastest(rows),
        calls=calls_of(rows),
        variants=tuple(
            VariantPlan(variant=variant, trajectories=count) for variant, count in sorted(plan.variants.items())
        ),
        mixed=mixture_of(rows),
        limits=at_limits(rows, results, limits_of(plan.turns), plan.trajectories),
    )


def _fastest(rows: Sequence[TurnRecord]) -> FastestTurn | None:
    """The turn whose speedup is the cell's best, the first of equals."""
    best: tuple[float, TurnRecord] | None = None
    for row in rows:
        speedup = row.verdict.speedup
        if not row.verdict.correct or speedup is None or row.verdict.latency_ms is None:
            continue
        if best is None or speedup > best[0]:
            best = (speedup, row)
    if best is None or best[1].verdict.latency_ms is None:
        return None
    speedup, row = best
    interval = row.verdict.latency_interval_ms
    return FastestTurn(
        turn=str(row.key),
        speedup=speedup,
        latency_ms=best[1].verdict.latency_ms,
        latency_interval_ms=None if interval is None else Interval(low=interval[0], high=interval[1]),
        baseline_ms=row.verdict.baseline_ms,
        roofline_share=row.verdict.roofline_share,
        useful_share=row.verdict.useful_share,
    )


def _counted(names: Iterable[Name]) -> dict[Name, int]:
    return dict(sorted(Counter(names).items()))


def _baselines(evidence: Iterable[Evidence]) -> tuple[BaselineUse, ...]:
    measured = [item.run.baseline for item in evidence if item.run.baseline is not None]
    used = {(baseline.library, baseline.version, baseline.call) for baseline in measured}
    return tuple(BaselineUse(library=library, version=version, call=call) for library, version, call in sorted(used))
