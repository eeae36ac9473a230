"""What a service was told to be."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import NamedTuple

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8600
DEFAULT_STORE = Path("generated", "serve")
"""Folder of the task store, relative to the checkout."""
DEFAULT_MAX_QUEUE = 10_000
"""Tasks that wait. Beyond it, submissions are answered with 429."""
MAX_QUEUE_BYTES = 256 << 20
"""Bodies of the tasks that wait are held in memory."""
MAX_BODY_BYTES = 4 << 20
"""Of one request. A candidate's source is some 20 kB."""
BODY_TIMEOUT_S = 60.0
"""For a request's body to arrive: 4 MiB in a minute is a line of half a megabit per second."""
MAX_ANSWER_BYTES = 64 << 20
"""Of one answer. A task's result is some 10 kB, so a batch of 5,000 fits."""
DEFAULT_DRAIN_S = 60.0
"""How long evaluations that run may go on after SIGTERM; what has not ended then is begun anew by the next service."""
DEFAULT_KEEP_DAYS = 30.0
"""How long finished tasks are kept."""


class Settings(NamedTuple):
    """Of one service. Paths are absolute."""

    root: Path
    """The checkout."""
    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    profiler: str = "auto"
    """As ``--profiler`` of the benchmark."""
    evidence: tuple[Path, ...] = ()
    """Further folders that ``replay`` searches."""
    suite: str = "all"
    trace_sets: tuple[Path, ...] = ()
    arch: str | None = None
    """Architecture of solutions that name none; None: the device's, else the first of the suite."""
    store: Path = DEFAULT_STORE
    token: str | None = None
    slots: int = 2
    """Evaluations in progress at once. They take turns on a device; while one is measured, others compile."""
    max_queue: int = DEFAULT_MAX_QUEUE
    drain_s: float = DEFAULT_DRAIN_S
    keep_days: float = DEFAULT_KEEP_DAYS


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
