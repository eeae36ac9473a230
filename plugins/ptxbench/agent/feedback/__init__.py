"""What a model is told of its turn: plain text from the turn's record and source."""

from ptxbench.agent.feedback.composition import feedback
from ptxbench.agent.feedback.parts import MAX_CHARS

__all__ = ["MAX_CHARS", "feedback"]
