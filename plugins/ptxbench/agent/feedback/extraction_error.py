"""An answer that holds no kernel."""

from __future__ import annotations

from ptxbench.agent.feedback.parts import Parts, Turn
from ptxbench.agent.feedback.wording import safe


def describe(turn: Turn) -> Parts:
    """The reason, in the words of whoever looked for the kernel."""
    return Parts(
        "No kernel was found in your answer, so nothing was compiled or run.",
        (safe(turn.verdict.message, 800) or "The answer holds no code block.",),
        (
            "Put the whole kernel into one fenced code block (```cuda ... ```), complete and closed, "
            "with its includes and its TVM-FFI export at the end.",
        ),
    )
