"""One trajectory: its turns in order, each asked for, built, measured, judged and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.agent.plan import Skipped, TrajectoryPlan
from ptxbench.agent.profilers import Profilers
from ptxbench.agent.store import RunStore
from ptxbench.errors import InfrastructureError
from ptxbench.models import End, Proposal
from ptxbench.records import Candidate, InfrastructureFault, Outcome, TurnKey, TurnRecord
from ptxbench.verdict import judge_infrastructure
from ptxbench.verdict.metrics import TARGET_SPEEDUP

RETRIES = 2
"""Infrastructure faults are tried again this often before they count (DESIGN)."""

LASTING_FAULTS = frozenset(
    {"compiler_missing", "no_device", "device_mismatch", "baseline_unavailable", "reference_failed", "disk_full"}
)
"""Faults that trying again at once cannot cure."""

T = TypeVar("T")

Resolution = TurnRecord | Skipped | BaseException
Resolve = Callable[[TurnKey, Resolution], None]


class TrajectoryRunner:
    """Runs trajectories, one call of ``run`` per trajectory; several threads may call it at once."""

    def __init__(
        self, store: RunStore, evaluator: Evaluator, profilers: Profilers, stopped: Callable[[], bool]
    ) -> None:
        self._store = store
        self._evaluator = evaluator
        self._profilers = profilers
        self._stopped = stopped
        self._unsaved: list[tuple[TurnRecord, Candidate | None]] = []

    def run(self, plan: TrajectoryPlan, resolve: Resolve) -> None:
        """Resolve every turn of ``plan``: its record, why it never happened, or the fault that prevented it.

        After a lasting fault the rest of the trajectory has the same one; after any other it goes on without the turn.
        """
        with self._store.trajectory(plan.id, self._stopped):
            history: list[TurnRecord] = []
            rest: Skipped | InfrastructureError | None = None
            for turn in range(plan.turns):
                key = plan.key(turn)
                if rest is None and self._stopped():
                    rest = Skipped("the run was stopped before this turn")
                if rest is not None:
                    resolve(key, rest)
                    continue
                try:
                    outcome = self._turn(plan, turn, history)
                except InfrastructureError as error:
                    rest = self._fault_or_stop(plan, turn, error)
                    resolve(key, rest if rest is not None else error)
                    continue
                resolve(key, outcome)
                if isinstance(outcome, Skipped):
                    rest = outcome
                else:
                    history.append(outcome)
                    rest = _target_reached(outcome)

    def save_again(self) -> None:
        """Store what was measured but could not be stored then. Raises InfrastructureError if it still cannot."""
        while self._unsaved:
            self._store.save(*self._unsaved[0])
            self._unsaved.pop(0)

    def _turn(self, plan: TrajectoryPlan, turn: int, history: Sequence[TurnRecord]) -> TurnRecord | Skipped:
        stored = self._reusable(plan, turn)
        if stored is not None:
            return stored
        profiler = self._profilers.for_case(plan.case)
        if isinstance(profiler, Skipped):
            return profiler
        proposal = self._retried(
            lambda: plan.model.propose(plan.case, plan.variant, plan.trajectory, turn, tuple(history))
        )
        if isinstance(proposal, End):
            return Skipped(proposal.message)
        evaluation = self._retried(lambda: self._evaluator.evaluate(plan.case, proposal, profiler))
        record = _record(plan, turn, proposal, evaluation)
        try:
            self._store.save(record, proposal.candidate)
        except InfrastructureError:
            self._unsaved.append((record, proposal.candidate))
            raise
        return record

    def _reusable(self, plan: TrajectoryPlan, turn: int) -> TurnRecord | None:
        """The stored turn, if it is finished and still answers the question that is asked now."""
        stored = self._store.load(plan.key(turn))
        if stored is None:
            return None
        record = stored.record
        known = plan.model.known_source(plan.case, plan.variant, plan.trajectory, turn)
        if record.verdict.outcome is Outcome.UNKNOWN or (known is not None and known != record.source_sha256):
            return None
        if record.evidence_origin == "replayed" and self._profilers.measures(plan.case):
            return None
        floor = plan.model.min_speedup(plan.case)
        if floor != record.min_speedup:
            # A floor is not part of what was measured: it may change without measuring again.
            record = record.model_copy(update={"min_speedup": floor})
            self._store.save(record, stored.candidate)
        return record

    def _retried(self, action: Callable[[], T]) -> T:
        for _ in range(RETRIES):
            try:
                return action()
            except InfrastructureError as error:
                if error.kind in LASTING_FAULTS or self._stopped():
                    raise
        return action()

    def _fault_or_stop(
        self, plan: TrajectoryPlan, turn: int, error: InfrastructureError
    ) -> Skipped | InfrastructureError | None:
        """What the fault means for the rest of the trajectory; None lets it go on."""
        if self._stopped():
            # Ctrl-C reaches tools and sandboxes too; what they report then is not a fault of the machinery.
            return Skipped("the run was stopped during this turn")
        # The item reports the fault itself; its record only helps those who read the folder later.
        with suppress(InfrastructureError):
            self._store.save_fault(_fault_record(plan, turn, error))
        return error if error.kind in LASTING_FAULTS else None


def _target_reached(record: TurnRecord) -> Skipped | None:
    verdict = record.verdict
    if not verdict.correct or verdict.speedup is None or verdict.speedup < TARGET_SPEEDUP:
        return None
    return Skipped(
        f"the trajectory reached its target in turn {record.key.turn}: {verdict.speedup:.3f}x of {TARGET_SPEEDUP}x"
    )


def _record(plan: TrajectoryPlan, turn: int, proposal: Proposal, evaluation: Evaluation) -> TurnRecord:
    return TurnRecord(
        key=plan.key(turn),
        definition=plan.case.definition.name,
        workload_uuid=plan.case.workload.uuid,
        variant_name=plan.variant_name,
        origin=proposal.origin,
        source_sha256=proposal.candidate.sha256 if proposal.candidate else None,
        build=evaluation.build,
        evidence=evaluation.evidence,
        evidence_origin=evaluation.origin,
        verdict=evaluation.verdict,
        min_speedup=plan.model.min_speedup(plan.case),
        stages_ms=evaluation.stages_ms,
    )


def _fault_record(plan: TrajectoryPlan, turn: int, error: InfrastructureError) -> TurnRecord:
    fault = InfrastructureFault(kind=error.kind, message=str(error))
    return TurnRecord(
        key=plan.key(turn),
        definition=plan.case.definition.name,
        workload_uuid=plan.case.workload.uuid,
        variant_name=plan.variant_name,
        origin="none",
        source_sha256=None,
        build=None,
        evidence=None,
        evidence_origin="none",
        verdict=judge_infrastructure(fault),
        fault=fault,
        min_speedup=plan.model.min_speedup(plan.case),
    )
