"""The feedback on one turn: a headline, facts, what to look at, what comes next; each within its budget."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ptxbench.agent.feedback import (
    compile_error,
    correct,
    extraction_error,
    hang,
    memory_error,
    numerical_error,
    runtime_error,
    screened,
    unjudged,
    wrong_shape,
)
from ptxbench.agent.feedback.goal_text import goal_text
from ptxbench.agent.feedback.parts import (
    ADVICE_CHARS,
    FACTS_CHARS,
    HEADLINE_CHARS,
    MAX_CHARS,
    NEXT_CHARS,
    Parts,
    Turn,
    bounded,
    bullets,
)
from ptxbench.agent.feedback.places import locator
from ptxbench.agent.feedback.wording import milliseconds, percent
from ptxbench.agent.goal import PROTOCOL_GOAL, Goal
from ptxbench.records import Outcome, Target

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.models import PastTurn
    from ptxbench.toolchain import Toolchain

_DESCRIBE: dict[Outcome, Callable[[Turn], Parts]] = {
    Outcome.EXTRACTION_ERROR: extraction_error.describe,
    Outcome.SCREENED: screened.describe,
    Outcome.COMPILE_ERROR: compile_error.describe,
    Outcome.MEMORY_ERROR: memory_error.describe,
    Outcome.RUNTIME_ERROR: runtime_error.describe,
    Outcome.TIMEOUT: hang.describe,
    Outcome.WRONG_SHAPE_OR_DTYPE: wrong_shape.describe,
    Outcome.NUMERICAL_ERROR: numerical_error.describe,
    Outcome.CORRECT: correct.describe,
    Outcome.UNKNOWN: unjudged.describe,
    Outcome.INFRASTRUCTURE_ERROR: unjudged.describe,
}


def feedback(
    case: Case,
    past: PastTurn,
    *,
    turns_left: int,
    toolchain: Toolchain | None,
    history: Sequence[PastTurn] = (),
    goal: Goal = PROTOCOL_GOAL,
) -> str:
    """What the model is told of a turn, at most ``MAX_CHARS`` characters.

    A pure text of the records and the source. ``toolchain`` only serves to name the source line of a place in the
    device code; without it the place is given as an offset. No element of an output or of the reference, no seed, no
    path, no device address and no position of a checked iteration is ever part of it. ``history`` are the turns before
    it; the best correct one of all is named. ``goal`` is what the trajectory is for.
    """
    turn = Turn(case, past.record, past.source or "", locator(case, past, toolchain))
    parts = _DESCRIBE[past.record.verdict.outcome](turn)
    sections = [bounded(parts.headline, HEADLINE_CHARS)]
    for title, items, limit in (
        ("Facts", parts.facts, FACTS_CHARS),
        ("What to look at", parts.advice, ADVICE_CHARS),
        ("Next", _next(turn, turns_left, history, goal), NEXT_CHARS),
    ):
        if items:
            sections.append(f"{title}:\n{bullets(items, limit)}")
    return bounded("\n\n".join(sections), MAX_CHARS) + "\n"


def _next(turn: Turn, turns_left: int, history: Sequence[PastTurn], goal: Goal) -> tuple[str, ...]:
    if turns_left <= 0:
        return ("No turn is left.",)
    left = "1 turn is left" if turns_left == 1 else f"{turns_left} turns are left"
    answer = f"{left}. Answer with one complete kernel source, not with a patch."
    return (answer, *_best(turn, history), *_noise(turn, history), goal_text(goal, turn.case, _baseline_ms(turn)))


def _best(turn: Turn, history: Sequence[PastTurn]) -> Iterator[str]:
    """The best correct kernel so far, which a model may want to go back to: the fastest of those that hit the target.

    Of speedups, not of latencies: the library is timed beside each kernel, and devices differ a little. Counted are the
    answers of the conversation, which has none for a turn that a fault took.
    """
    verdicts = [*(past.record.verdict for past in history), turn.verdict]
    ranks = {
        position: (verdict.target is Target.EXECUTED, verdict.speedup, -position)
        for position, verdict in enumerate(verdicts, 1)
        if verdict.speedup is not None
    }
    if not history or not ranks:
        return
    best = max(ranks, key=lambda position: ranks[position])
    hits, speedup, _ = ranks[best]
    if best == len(verdicts):
        yield "Of your correct kernels so far, this one is the best."
    else:
        missed = "" if hits else ", without target instructions"
        yield f"Your best correct kernel so far is that of your answer {best}: {speedup:.3f}x{missed}."


def _noise(turn: Turn, history: Sequence[PastTurn]) -> Iterator[str]:
    """How far the same library's latencies lie apart, timed beside each answer: devices and their clocks differ."""
    verdicts = [*(past.record.verdict for past in history), turn.verdict]
    found = [verdict.baseline_ms for verdict in verdicts if verdict.baseline_ms is not None]
    if turn.verdict.baseline_ms is not None and len(found) > 1:
        least, most = min(found), max(found)
        if most > least:
            yield (
                f"Beside your answers the library took {milliseconds(least)} to {milliseconds(most)}: "
                f"differences below {percent(most / least - 1)} may be noise."
            )


def _baseline_ms(turn: Turn) -> float | None:
    if turn.verdict.baseline_ms is not None:
        return turn.verdict.baseline_ms
    evidence = turn.record.evidence
    baseline = evidence.run.baseline if evidence is not None else None
    return statistics.median(baseline.span_ns) / 1e6 if baseline is not None and baseline.span_ns else None
