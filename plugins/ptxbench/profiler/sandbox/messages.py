"""What the oracle and a candidate's process say to each other, and the bounds of it."""

from __future__ import annotations

CONTEXT = b"x"
CALL = b"c"
WARM_UP = b"w"
EXPLAIN = "explain"
"""Operation: say what was wrong at the last failure."""
MAX_MESSAGE_CHARS = 4_000
MAX_LAUNCHES = 64
"""Kinds of launches that one collection tells of."""
MAX_MODULES = 64
"""Device images that ``Loads`` tells of; a candidate has one or two."""
MAX_IMAGE_BYTES = 3_000_000
"""A larger image is told by its hash alone: in base64 it has to fit into a reply."""
MAX_NAMES = 1_000
"""Different names of each kind that ``Loads`` tells of. The CUDA runtime looks up some 400 when it starts."""
