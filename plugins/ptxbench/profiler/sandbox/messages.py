"""What the oracle and a candidate's process say to each other, and the bounds of it."""

from __future__ import annotations

CONTEXT = b"x"
CALL = b"c"
WARM_UP = b"w"
OK = b"o"
MAX_MESSAGE_CHARS = 4_000
MAX_LAUNCHES = 64
"""Kinds of launches that one collection tells of."""
