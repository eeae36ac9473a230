"""For whom an operation is, and how soon: what a shared profiler schedules by, beside the operation itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

Priority = Literal["interactive", "bulk"]


@dataclass(frozen=True)
class Ticket:
    """Whose operation it is."""

    client: str = ""
    """Whoever shares a profiler gets an equal part of it; operations without a name are one client's."""
    priority: Priority = "interactive"
    """``interactive``: somebody waits for this answer. ``bulk``: for all of many, in whatever order."""


_NOBODYS = Ticket()
_CURRENT: ContextVar[Ticket] = ContextVar("ptxbench_ticket", default=_NOBODYS)


@contextmanager
def ticket(client: str = "", priority: Priority = "interactive") -> Iterator[Ticket]:
    """Operations that this thread or task begins within are for ``client``."""
    made = Ticket(client, priority)
    token = _CURRENT.set(made)
    try:
        yield made
    finally:
        _CURRENT.reset(token)


def current_ticket() -> Ticket:
    """The ticket of whoever calls."""
    return _CURRENT.get()
