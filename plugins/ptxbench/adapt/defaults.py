"""Numbers that teachers work with unless told otherwise. Alone, so that a command's help imports nothing else."""

from __future__ import annotations

REPAIR_TURNS = 5
"""Answers that a repair teacher is given for one failure (PROTOCOL 7)."""
ATTEMPTS = 4
"""Answers that a reasoning teacher is asked for, the first included. Ours."""
LEAST_TOKENS, MOST_TOKENS = 150, 3000
"""Length of a rationale, in estimated tokens. Ours: below, it names no cause; the longest thoughts of the example runs
have about as many."""
RECORD_TOKENS = 65_536
"""A training record has at most so many; one with more is dropped (PROTOCOL 7)."""
