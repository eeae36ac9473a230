"""One trajectory: its turns in order, each asked for, built, measured, judged and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from ptxbench.agent.dialogue import departure, followed
from ptxbench.agent.evaluation import Evaluation, Evaluator
from ptxbench.agent.fault_record import fault_record
from ptxbench.agent.meter import Meter
from ptxbench.agent.plan import Skipped, TrajectoryPlan
from ptxbench.agent.profilers import Profilers
from ptxbench.agent.store import ASKED, RunStore
from ptxbench.agent.turn_files import StoredTurn
from ptxbench.errors import InfrastructureError
from ptxbench.models import End, PastTurn, Proposal
from ptxbench.plain import plain
from ptxbench.records import (
    Candidate,
    InfrastructureFault,
    Outcome,
    Target,
    TrajectoryEnd,
    TurnKey,
    TurnRecord,
    Verdict,
)
from ptxbench.records.texts import placeless
from ptxbench.verdict import Rule, judge

RETRIES = 2
"""Infrastructure faults are tried again this often before they count (DESIGN)."""

LASTING_FAULTS = frozenset(
    {
        "compiler_missing",
        "no_device",
        "device_mismatch",
        "device_quarantined",
        "baseline_unavailable",
        "reference_failed",
        "disk_full",
    }
)
"""Faults that trying again at once cannot cure."""

REPEATED_FAULTS = frozenset({"device_disturbed"})
"""Faults of one turn that the profiler itself has tried again."""

T = TypeVar("T")

Resolution = TurnRecord | Skipped | BaseException
Resolve = Callable[[TurnKey, Resolution], None]


class TrajectoryRunner:
    """Runs trajectories, one call of ``run`` per trajectory; several threads may call it at once."""

    def __init__(
        self,
        store: RunStore,
        evaluator: Evaluator,
        profilers: Profilers,
        stopped: Callable[[], bool],
        meter: Meter | None = None,
    ) -> None:
        self._store = store
        self._evaluator = evaluator
        self._profilers = profilers
        self._stopped = stopped
        self._meter = meter or Meter()
        self._unsaved: list[tuple[TurnRecord, Candidate | None]] = []

    def run(self, plan: TrajectoryPlan, resolve: Resolve) -> None:
        """Resolve every turn of ``plan``: its record, why it never happened, or the fault that prevented it.

        After a lasting fault of the machinery the rest of the trajectory has the same one; after any other it goes on
        without the turn. So it does after a model's, but there each turn finds the fault anew: those that need no call
        are not touched by it.
        """
        with self._store.trajectory(plan.id, self._stopped):
            history: list[PastTurn] = []
            rest: Skipped | InfrastructureError | None = None
            for turn in range(plan.turns):
                key = plan.key(turn)
                if rest is None and self._stopped():
                    rest = self._kept(key, Skipped("the run was stopped before this turn", "stopped"))
                if rest is not None:
                    if isinstance(rest, InfrastructureError):
                        self._keep_fault(plan, turn, rest)
                    resolve(key, rest)
                    continue
                try:
                    outcome = self._turn(plan, turn, history)
                except InfrastructureError as error:
                    self._meter.worked()
                    rest = self._fault_or_stop(plan, turn, error)
                    resolve(key, rest if rest is not None else error)
                    continue
                if isinstance(outcome, Skipped):
                    resolve(key, self._kept(key, outcome))
                    rest = outcome
                else:
                    history.append(outcome)
                    rest = self._end_at_target(plan, outcome.record) or _unheard(outcome.record)
                    if rest is not None:
                        self._kept(plan.key(turn + 1), rest)
                    elif turn + 1 == plan.turns:
                        self._waits_no_longer(plan.key(turn + 1))
                    resolve(key, outcome.record)

    def save_again(self) -> None:
        """Store what was measured but could not be stored then. Raises InfrastructureError if it still cannot."""
        waiting, self._unsaved = self._unsaved, []
        failure: InfrastructureError | None = None
        for record, candidate in waiting:
            try:
                self._store.save(record, candidate)
            except InfrastructureError as error:
                self._unsaved.append((record, candidate))
                failure = failure or error
        if failure is not None:
            raise failure

    def _turn(self, plan: TrajectoryPlan, turn: int, history: Sequence[PastTurn]) -> PastTurn | Skipped:
        floor = plan.model.min_speedup(plan.case)  # a broken file of floors must cost no measurement
        stored = self._stored(plan.key(turn), history)
        known = plan.model.known_source(plan.case, plan.variant, plan.trajectory, turn)
        if stored is not None and known not in (None, stored.record.source_sha256):
            stored = None
        if stored is not None and (record := self._reusable(plan, stored, floor)) is not None:
            return _past(record, stored.candidate)
        profiler = self._profilers.for_case(plan.case)
        if isinstance(profiler, Skipped):
            return profiler
        # A model has its own way of trying again, with its own patience.
        before = _proposed_before(stored)
        proposal = before or plan.model.propose(plan.case, plan.variant, plan.trajectory, turn, tuple(history))
        if isinstance(proposal, End):
            return self._end(plan.key(turn), proposal)
        evaluation = self._retried(lambda: self._evaluator.evaluate(plan.case, proposal, profiler))
        if stored is not None and profiler.origin == "replayed" and _knows_more(stored, evaluation):
            return _past(self._kept_as(stored, self._judged(plan, stored), floor), stored.candidate)
        record = _record(plan, turn, proposal, evaluation, floor)
        if proposal.exchange is not None:
            kept = stored.record if stored is not None and before is not None else None
            follows = kept.follows if kept is not None else followed(proposal.exchange, history)
            record = record.model_copy(update={"follows": follows})
        try:
            self._store.save(record, proposal.candidate)
        except InfrastructureError:
            self._unsaved.append((record, proposal.candidate))
            raise
        self._meter.worked()
        if before is None:
            # What was said after an answer that is another one now was never said in this conversation.
            for later in self._store.later(record.key):
                self._stored(later, ())
        return _past(record, proposal.candidate)

    def _stored(self, key: TurnKey, history: Sequence[PastTurn]) -> StoredTurn | None:
        """A stored turn. One that answers another conversation than is stored before it is moved aside.

        ``history`` are turns before it as they are stored: reading each again for each that follows would be most of
        what a finished run costs.
        """
        stored = self._store.load(key)
        if stored is None or stored.record.origin != ASKED:
            return stored

        known = {past.record.key.turn: past for past in history}

        def find(turn: int) -> PastTurn | None:
            if turn in known:
                return known[turn]
            found = self._store.load(key.model_copy(update={"turn": turn}))
            return _past(found.record, found.candidate) if found is not None else None

        if reason := departure(stored.record, find):
            self._store.set_aside(stored, reason)
            return None
        return stored

    def keep_faults(self, plan: TrajectoryPlan, turns: Iterable[int], error: BaseException) -> None:
        """Leave turns out of N that an error nobody foresaw kept from happening."""
        fault = InfrastructureError("internal_error", f"{type(error).__name__}: {error}")
        for turn in turns:
            self._keep_fault(plan, turn, fault)

    def _kept(self, key: TurnKey, skipped: Skipped) -> Skipped:
        """Say on disk that the trajectory pauses here, so that the report leaves the rest of its turns out of N."""
        if skipped.passing is not None and self._given(key):
            with suppress(InfrastructureError):
                self._store.save_end(TrajectoryEnd(key=key, reason=skipped.passing, message=skipped.reason))
        return skipped

    def _given(self, key: TurnKey) -> bool:
        """Whether the run, in this session or an earlier one, gave its trajectories this turn."""
        given = self._store.turns_given(key.model)
        return given is None or key.turn < given

    def _waits_no_longer(self, key: TurnKey) -> None:
        """Behind the session's last turn: an earlier one may have waited here until the turn before was measured."""
        end = self._store.load_end(key)
        if end is None or end.key != key or end.reason != "unmeasured":
            return
        self._store.forget_end(key)
        self._kept(key, Skipped("the session that measured the turn before it gave no more turns", "stopped"))

    def _end(self, key: TurnKey, end: End) -> Skipped:
        """The model ended the trajectory before this turn."""
        reason = end.reason
        if reason != "no_further_turn":
            self._store.save_end(TrajectoryEnd(key=key, reason=reason, message=end.message, exchange=end.exchange))
        return Skipped(end.message)

    def _end_at_target(self, plan: TrajectoryPlan, record: TurnRecord) -> Skipped | None:
        verdict, speedup = record.verdict, plan.goal.speedup
        if not plan.goal.reached(verdict):
            return None
        amount = f": {verdict.speedup:.3f}x of {speedup}x" if speedup is not None else ""
        message = f"the trajectory reached its target in turn {record.key.turn}{amount}"
        key = record.key.model_copy(update={"turn": record.key.turn + 1})
        # It follows from the record, so it can be told again.
        with suppress(InfrastructureError):
            self._store.save_end(TrajectoryEnd(key=key, reason="target_reached", message=message))
        return Skipped(message)

    def _reusable(self, plan: TrajectoryPlan, stored: StoredTurn, floor: float | None) -> TurnRecord | None:
        """The stored turn by today's rules, if it is finished; None if it must be measured again."""
        record = self._judged(plan, stored)
        if _is_open(record.verdict):
            return None
        if record.evidence_origin == "replayed" and self._profilers.measures(plan.case):
            return None
        return self._kept_as(stored, record, floor)

    def _judged(self, plan: TrajectoryPlan, stored: StoredTurn) -> TurnRecord:
        record = stored.record
        if record.build is None:
            return record
        return record.model_copy(update={"verdict": judge(plan.case, record.build, record.evidence)})

    def _kept_as(self, stored: StoredTurn, record: TurnRecord, floor: float | None) -> TurnRecord:
        # A floor is not part of what was measured: it may change without measuring again.
        record = record.model_copy(update={"min_speedup": floor})
        if record != stored.record:
            self._store.save(record, stored.candidate)
        return record

    def _retried(self, action: Callable[[], T]) -> T:
        for _ in range(RETRIES):
            try:
                return action()
            except InfrastructureError as error:
                if error.kind in LASTING_FAULTS | REPEATED_FAULTS or self._stopped():
                    raise
        return action()

    def _fault_or_stop(
        self, plan: TrajectoryPlan, turn: int, error: InfrastructureError
    ) -> Skipped | InfrastructureError | None:
        """What the fault means for the rest of the trajectory; None lets it go on."""
        if self._stopped():
            # Ctrl-C reaches tools and sandboxes too; what they report then is not a fault of the machinery.
            return self._kept(plan.key(turn), Skipped("the run was stopped during this turn", "stopped"))
        self._keep_fault(plan, turn, error)
        return error if error.kind in LASTING_FAULTS else None

    def _keep_fault(self, plan: TrajectoryPlan, turn: int, error: InfrastructureError) -> None:
        """The item reports the fault itself; its record lets the report leave the turn out of N."""
        with suppress(InfrastructureError):
            self._store.save_fault(_fault_record(plan, turn, error))


def _past(record: TurnRecord, candidate: Candidate | None) -> PastTurn:
    return PastTurn(record, candidate.source if candidate else None)


def _unheard(record: TurnRecord) -> Skipped | None:
    """Why a conversation waits: without a device and stored evidence there is nothing to tell the model."""
    if record.exchange is None or record.verdict.rule != Rule.EVIDENCE_NONE:
        return None
    return Skipped(
        f"turn {record.key.turn} was not measured, so there is no feedback that the model could go on with; "
        "continue the run on a machine with the case's GPU",
        "unmeasured",
    )


def _is_open(verdict: Verdict) -> bool:
    """Whether something that should be known is not, and might be when tried again: a tool was missing, say."""
    return verdict.outcome is Outcome.UNKNOWN or (verdict.correct and verdict.target is Target.UNKNOWN)


def _knows_more(stored: StoredTurn, replayed: Evaluation) -> bool:
    """Whether what a device measured would give way to no evidence, or to evidence that leaves the turn open too.

    A turn is open where a tool was missing, say; its numbers are still the only ones that there are.
    """
    if stored.candidate is None or stored.record.evidence_origin != "measured":
        return False
    return replayed.evidence is None or _is_open(replayed.verdict)


def _proposed_before(stored: StoredTurn | None) -> Proposal | None:
    """The candidate of a turn that is measured again: asking the model anew would be paid for, and another answer."""
    if stored is None or stored.candidate is None:
        return None
    return Proposal(candidate=stored.candidate, origin=stored.record.origin, exchange=stored.record.exchange)


def _record(
    plan: TrajectoryPlan, turn: int, proposal: Proposal, evaluation: Evaluation, floor: float | None
) -> TurnRecord:
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
        min_speedup=floor,
        exchange=proposal.exchange,
        stages_ms=evaluation.stages_ms,
    )


def _fault_record(plan: TrajectoryPlan, turn: int, error: InfrastructureError) -> TurnRecord:
    # The record may be read on another machine, and what a tool or provider said may hold anything.
    fault = InfrastructureFault(kind=error.kind, message=placeless(plain(str(error))))
    return fault_record(
        plan.key(turn),
        fault,
        definition=plan.case.definition.name,
        workload_uuid=plan.case.workload.uuid,
        variant_name=plan.variant_name,
    )
