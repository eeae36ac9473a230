"""The feedback e of a training record: what the model was told of one kernel, without what it was told of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxbench.adapt.texts import filled
from ptxbench.agent.feedback import feedback
from ptxbench.models import PastTurn

if TYPE_CHECKING:
    from ptxbench.cases import Case

NEXT = "\n\nNext:\n"
"""Where the part begins that speaks of other turns too (``ptxbench.agent.feedback.composition``)."""


def feedback_alone(case: Case, past: PastTurn, said: str | None, turns_left: int) -> str:
    """The feedback on ``past`` as if its kernel were the conversation's only one.

    ``said`` is what the model was really told, where it had another turn: facts and advice are taken from there, with
    the source lines that a toolchain found then. What comes next is written anew, since there the best earlier kernel
    is named, which a record of one kernel does not hold. ``turns_left`` counts at least one: an answer follows.
    """
    written = feedback(case, past, turns_left=max(1, turns_left), toolchain=None)
    if said is not None:
        said = said.partition(filled("retrieval"))[0]  # notes are on other kernels, and may hold any words
    if said is None or NEXT not in said or NEXT not in written:
        return written
    return said[: said.rindex(NEXT)] + written[written.rindex(NEXT) :]


def without_next(feedback: str) -> str:
    """The feedback without what it says of the turns that came: for a reader who has turns and a goal of his own."""
    said, found, _ = feedback.rpartition(NEXT)
    return said if found else feedback
