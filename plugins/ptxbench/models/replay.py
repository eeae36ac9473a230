"""``replay:RUN``: the turns of an earlier run, its sources evaluated anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models.base import End, PastTurn, Proposal, no_further_turn, slug
from ptxbench.records import PASSING_ENDS, Candidate, Outcome, TrajectoryEnd, TurnKey, TurnRecord

if TYPE_CHECKING:
    from ptxbench.cases import Case


class RecordedRun(Protocol):
    """What replaying needs of a stored run."""

    @property
    def name(self) -> str:
        """The run as the user called it."""

    def turn_keys(self) -> Sequence[TurnKey]:
        """Every stored turn."""

    @property
    def imported(self) -> str:
        """Name of the file with somebody else's results that the run is of; empty for a run of ours."""

    def turns_given(self, model: str) -> int | None:
        """Turns that each trajectory of the model was given; None where the run does not say."""

    def record(self, key: TurnKey) -> TurnRecord | None:
        """The record of a stored, intact turn."""

    def load_fault(self, key: TurnKey) -> TurnRecord | None:
        """The record of a turn that an infrastructure fault kept from finishing."""

    def load_end(self, key: TurnKey) -> TrajectoryEnd | None:
        """How the trajectory of a turn ended early."""

    def candidate(self, key: TurnKey) -> Candidate | None:
        """The candidate of a stored turn; None where the model's answer held none or the turn is damaged."""


class ReplayModel:
    """Proposes what one model of an earlier run proposed, turn by turn, with the calls that brought it.

    A turn that was excluded there is excluded here, and a trajectory that ended early ends at the same turn, so that
    the rates of both runs have the same N. Raises InputError for a run without turns or without kernels, or with
    several models when none is named.
    """

    def __init__(self, run: RecordedRun, recorded_model: str | None = None) -> None:
        if run.imported:
            raise InputError(
                f"--model replay:{run.name}: expected a run with kernels, found results imported from {run.imported}, "
                "which hold none; replay another run"
            )
        keys = run.turn_keys()
        models = sorted({key.model for key in keys})
        if recorded_model is None and len(models) == 1:
            recorded_model = models[0]
        if recorded_model not in models:
            found = ", ".join(models) if models else "no turn at all"
            wanted = "one model" if recorded_model is None else f"the model {recorded_model!r}"
            raise InputError(
                f"--model replay:{run.name}: expected turns of {wanted}, found {found}; "
                f"name one as replay:{run.name}::MODEL"
            )
        self.name = f"replay.{slug(f'{run.name}.{recorded_model}' if len(models) > 1 else run.name)}"
        self._run = run
        self._model = recorded_model
        self._keys = {
            (key.case, key.arch, key.variant, key.trajectory, key.turn): key
            for key in keys
            if key.model == recorded_model
        }
        seen = max(key.turn for key in self._keys.values()) + 1
        self.turns: int | None = max(seen, run.turns_given(recorded_model) or 0)

    def min_speedup(self, case: Case) -> float | None:
        """A replayed source declares no floor: the earlier model's floor was that model's."""
        del case
        return None

    def _recorded(self, case: Case, variant: int, trajectory: int, turn: int) -> TurnKey | None:
        return self._keys.get((case.name, case.arch.name, variant, trajectory, turn))

    def known_source(self, case: Case, variant: int, trajectory: int, turn: int) -> str | None:
        """The stored candidate's hash."""
        key = self._recorded(case, variant, trajectory, turn)
        candidate = self._run.candidate(key) if key else None
        return candidate.sha256 if candidate else None

    def propose(
        self, case: Case, variant: int, trajectory: int, turn: int, history: Sequence[PastTurn]
    ) -> Proposal | End:
        """The stored candidate of the same case, architecture, variant, trajectory and turn.

        Raises InfrastructureError for a turn that one kept from being judged then.
        """
        del history
        key = self._recorded(case, variant, trajectory, turn)
        record = self._run.record(key) if key else None
        if key is None or record is None:
            return self._without_record(case, variant, trajectory, turn)
        candidate = self._run.candidate(key)
        error = "" if candidate else "the recorded answer held no kernel"
        if candidate is None and record.verdict.outcome is Outcome.EXTRACTION_ERROR:
            error = record.verdict.message
        return Proposal(candidate=candidate, extraction_error=error, origin="replay", exchange=record.exchange)

    def _without_record(self, case: Case, variant: int, trajectory: int, turn: int) -> End:
        key = TurnKey(
            model=self._model, case=case.name, arch=case.arch.name, variant=variant, trajectory=trajectory, turn=turn
        )
        excluded = self._run.load_fault(key)
        if excluded is not None and excluded.fault is not None:
            raise InfrastructureError(excluded.fault.kind, f"as recorded: {excluded.fault.message}")
        end = self._run.load_end(key)
        if end is None or end.key != key or end.reason == "target_reached":
            return no_further_turn(turn)
        # What kept turns from happening then is left out of N now as well.
        if end.reason in PASSING_ENDS:
            return End(message=end.message, reason="budget", exchange=end.exchange)
        return End(message=end.message, reason="context_exhausted", exchange=end.exchange)
