"""An earlier run as ``replay:RUN`` repeats it."""

from __future__ import annotations

from ptxbench.agent.fault_record import fault_record
from ptxbench.agent.store import RunStore
from ptxbench.records import InfrastructureFault, TurnKey, TurnRecord

TURN_MISSING = "turn_missing"
"""Kind of the fault of a turn that a run must have had and does not hold."""


class RepeatedRun(RunStore):
    """A run whose gaps are faults. Without, a trajectory would seem to have ended where a file was lost."""

    def load_fault(self, key: TurnKey) -> TurnRecord | None:
        """The turn's fault; also where the turn itself is missing, though later ones are there, or is damaged."""
        fault = super().load_fault(key)
        if fault is not None or self.record(key) is not None:
            return fault
        later = self.later(key)
        damaged = self.turn_path(key).exists()
        if not later and not damaged:
            return None
        there = "a damaged record" if damaged else f"none, though turn {later[0].turn} is there"
        message = (
            f"expected turn {key.turn} of {key.trajectory_id} in the run {self.name}, found {there}; "
            "restore the run folder, or resume the run to have the turn done again"
        )
        missing = InfrastructureFault(kind=TURN_MISSING, message=message)
        return fault_record(key, missing, definition=key.case)
