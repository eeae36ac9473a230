"""Whether a turn counts in a metric, or nobody knows: the one rule of tables, reports and gates. Pure."""

from __future__ import annotations

from ptxbench.records import Outcome, Target, Verdict
from ptxbench.verdict import Flag
from ptxbench.verdict.speed import WITHHOLDING


def is_hit(verdict: Verdict, *, inst: bool = False, above: float | None = None) -> bool | None:
    """Whether a turn counts; None where that is unknown, by its outcome, its target indicator or its speed.

    ``inst``: only if its target instructions executed. ``above``: only with a speedup strictly above it.
    """
    answers = [None if verdict.outcome is Outcome.UNKNOWN else verdict.correct]
    if inst:
        answers.append(None if verdict.target is Target.UNKNOWN else verdict.target is Target.EXECUTED)
    if above is not None:
        answers.append(_faster(verdict, above))
    return False if False in answers else None if None in answers else True


def speed_unknown(verdict: Verdict) -> bool:
    """Whether nobody measured the speed, or not by itself: what disturbed the device is no fault of the kernel's.

    A speedup that is withheld for another cause is known not to count.
    """
    if verdict.speedup is not None:
        return False
    unmeasured = verdict.latency_ms is None or verdict.baseline_ms is None
    return unmeasured or WITHHOLDING & set(verdict.flags) == {Flag.DISTURBED}


def _faster(verdict: Verdict, above: float) -> bool | None:
    if verdict.speedup is not None:
        return verdict.speedup > above
    return None if speed_unknown(verdict) else False
