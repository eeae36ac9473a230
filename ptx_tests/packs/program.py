"""What a check is given: a loaded check program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Program(Protocol):
    """Its exports are methods, which take numpy arrays (read, and written where they are results) and numbers."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An exported function."""
