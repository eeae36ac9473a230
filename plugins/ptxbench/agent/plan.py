"""What a run will do, known before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from ptxbench.agent.goal import PROTOCOL_GOAL, Goal
from ptxbench.models import Model
from ptxbench.records import TurnKey

if TYPE_CHECKING:
    from ptxbench.cases import Case


class TrajectoryPlan(NamedTuple):
    """One trajectory: a model on a case with one prompt variant, for a number of turns."""

    model: Model
    case: Case
    variant: int
    """Index into the case's variants."""
    trajectory: int
    turns: int
    goal: Goal = PROTOCOL_GOAL

    def key(self, turn: int) -> TurnKey:
        """The key of one of its turns."""
        return TurnKey(
            model=self.model.name,
            case=self.case.name,
            arch=self.case.arch.name,
            variant=self.variant,
            trajectory=self.trajectory,
            turn=turn,
        )

    @property
    def id(self) -> str:
        """Stable, unique in a run."""
        return self.key(0).trajectory_id

    @property
    def variant_name(self) -> str:
        """Name of the prompt variant."""
        return self.case.variants[self.variant]


class Skipped(NamedTuple):
    """A turn that never happens, and why. Not a failure of anything."""

    reason: str
    passing: Literal["unmeasured", "stopped"] | None = None
    """Set where the reason is one of this session's and not of the model's."""
