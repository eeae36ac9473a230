"""What a trajectory is for, and when it has reached that."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ptxbench.records import Safe, Target, Verdict
from ptxbench.verdict.metrics import TARGET_SPEEDUP


class Goal(NamedTuple):
    """A trajectory ends with the first correct kernel that has all of it."""

    speedup: float | None
    """Baseline latency over its own, at least; None: any speed."""
    target: Literal["ignored", "wanted", "required"]
    """Whether a target instruction must execute. One that is wanted is asked for, and the trajectory ends without."""
    safe: bool = False
    """Whether the sanitizer must have run and found nothing."""

    def reached(self, verdict: Verdict) -> bool:
        """Whether a turn with this verdict ends its trajectory. What is unknown is not reached."""
        return (
            verdict.correct
            and (self.speedup is None or (verdict.speedup is not None and verdict.speedup >= self.speedup))
            and (self.target != "required" or verdict.target is Target.EXECUTED)
            and (not self.safe or verdict.safe is Safe.YES)
        )


PROTOCOL_GOAL = Goal(TARGET_SPEEDUP, "wanted")
"""PROTOCOL 1: a trajectory ends early when a correct kernel reaches 1.2x."""
