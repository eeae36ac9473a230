"""A turn of which nothing is known: a fault of the machinery, or no device. Its details are nobody's but the user's."""

from __future__ import annotations

from ptxbench.agent.feedback.parts import Parts, Turn


def describe(turn: Turn) -> Parts:
    """Only that it says nothing about the kernel."""
    return Parts(
        "Your kernel was not measured, for a reason that is not yours. This says nothing about the kernel.",
        (),
        ("Send it again, or an improved one.",),
    )
