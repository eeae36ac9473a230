"""The goal of a trajectory in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxbench.agent.feedback.targets import target_families
from ptxbench.agent.feedback.wording import milliseconds
from ptxbench.agent.goal import Goal

if TYPE_CHECKING:
    from ptxbench.cases import Case


def goal_text(goal: Goal, case: Case, baseline_ms: float | None) -> str:
    """One sentence. ``baseline_ms`` is the library's latency, where it is known."""
    parts = ["correct"]
    if goal.speedup is not None:
        call = case.baseline.call
        if baseline_ms:
            call += f", {milliseconds(baseline_ms)} here: so at most {milliseconds(baseline_ms / goal.speedup)}"
        parts.append(f"at least {goal.speedup}x as fast as {case.baseline.library} ({call})")
    if goal.safe:
        parts.append("without findings of compute-sanitizer")
    if goal.target != "ignored":
        parts.append(f"executing {target_families(case)}")
    return f"Goal: {', '.join(parts)}."
