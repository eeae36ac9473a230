"""Reports of made-up turns, for what reads reports."""

from collections.abc import Iterable

from ptxbench.records import Outcome, Safe, Target, TrajectoryEnd, TurnKey, TurnRecord, Verdict
from ptxbench.report import CellKey, CellPlan, RunReport, build_report
from tests.unit.factories import GEMM, make_record, suite_case

CELL = CellKey("claude", GEMM, "h100")


def made(
    speedup: float | None = None,
    *,
    outcome: Outcome = Outcome.CORRECT,
    target: Target = Target.EXECUTED,
    measured: bool = True,
) -> Verdict:
    """A verdict; without ``measured`` nobody timed the kernel."""
    timed = measured and outcome is Outcome.CORRECT
    return Verdict(
        outcome=outcome,
        rule="check.made_up",
        message="made up",
        target=target,
        target_rule="target.made_up",
        target_message="made up",
        safe=Safe.NOT_RUN,
        latency_ms=1.0 if timed else None,
        baseline_ms=1.0 if timed else None,
        speedup=speedup,
    )


WRONG = made(outcome=Outcome.NUMERICAL_ERROR)
UNKNOWN = made(outcome=Outcome.UNKNOWN, target=Target.UNKNOWN)
INFRASTRUCTURE = made(outcome=Outcome.INFRASTRUCTURE_ERROR, target=Target.UNKNOWN)


def records(
    trajectories: Iterable[Iterable[Verdict]], model: str = "claude", case: str = GEMM, **changes: object
) -> list[TurnRecord]:
    """One record for each verdict, trajectory by trajectory."""
    return [
        make_record(turn, model=model, case=suite_case(case), trajectory=number, verdict=verdict, **changes)
        for number, verdicts in enumerate(trajectories)
        for turn, verdict in enumerate(verdicts)
    ]


def report(*trajectories: Iterable[Verdict], turns: int | None = None, model: str = "claude") -> RunReport:
    """The report of one cell, whose trajectories were given as many turns as the longest took, or ``turns``."""
    rows = [list(verdicts) for verdicts in trajectories]
    plan = CellPlan(len(rows), turns or max(map(len, rows)))
    return build_report(records(rows, model), {CELL._replace(model=model): plan})


def ended(trajectory: int, turn: int, reason: str = "budget") -> TrajectoryEnd:
    """The end of a trajectory of ``CELL`` before ``turn``."""
    return TrajectoryEnd.model_validate({"key": key(trajectory, turn), "reason": reason, "message": "made up"})


def key(trajectory: int, turn: int) -> TurnKey:
    """A turn of ``CELL``."""
    return TurnKey(**CELL._asdict(), variant=0, trajectory=trajectory, turn=turn)


def partial(
    *trajectories: Iterable[Verdict], turns: int, reason: str = "budget", unselected: Iterable[TurnKey] = ()
) -> RunReport:
    """The report of one cell whose trajectories ended for ``reason`` behind the verdicts, before their last turn."""
    rows = [list(verdicts) for verdicts in trajectories]
    ends = [ended(number, len(row), reason) for number, row in enumerate(rows) if reason and len(row) < turns]
    plan = {CELL: CellPlan(len(rows), turns)}
    return build_report(records(rows), plan, ends, unselected=unselected)
