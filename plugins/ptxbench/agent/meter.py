"""What a session has done so far: counted while it runs, for the progress line and the totals at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptxbench.agent.plan import Skipped
from ptxbench.records import Record, TurnRecord


class Progress(Record):
    """A moment of a session. Times are seconds."""

    planned: int = 0
    """Turns that this process has to resolve."""
    resolved: int = 0
    """Turns whose record, reason not to happen, or fault is known."""
    worked: int = 0
    """Turns of these that were not taken from disk."""
    judged: int = 0
    """Turns with a record."""
    correct: int = 0
    calls: int = 0
    """Replies of models that came in."""
    usd: float = 0.0
    tokens: int = 0
    elapsed_s: float = 0.0
    busy_s: float = 0.0
    """Time within operations of a profiler that measures; several at once count once."""
    measuring_s: float = 0.0
    """Time since the first of them."""

    @property
    def busy_share(self) -> float | None:
        """Part of the time since the first measurement in which something was measured, 0..1."""
        return self.busy_s / self.measuring_s if self.measuring_s > 0 else None

    @property
    def left_s(self) -> float | None:
        """Time until everything is resolved, if the rest takes as long as what was not taken from disk."""
        if not self.worked:
            return None
        return (self.planned - self.resolved) * self.elapsed_s / self.worked

    def plus(self, other: Progress) -> Progress:
        """Both together, as of two processes side by side."""
        values = {name: getattr(self, name) + getattr(other, name) for name in Progress.model_fields}
        return Progress(**{**values, "elapsed_s": max(self.elapsed_s, other.elapsed_s)})


class Meter:
    """Counts. Safe for several threads. ``clock`` is in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._counts = Progress()
        self._running = 0
        self._busy_since = 0.0
        self._first: float | None = None

    def plan(self, turns: int) -> None:
        """Begin with this many turns to resolve."""
        with self._lock:
            self._started = self._clock()
            self._add(planned=turns)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """An operation of a profiler."""
        with self._lock:
            now = self._clock()
            self._first = now if self._first is None else self._first
            if self._running == 0:
                self._busy_since = now
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._add(busy_s=self._clock() - self._busy_since)

    def called(self, usd: float, tokens: int) -> None:
        """A reply came in."""
        with self._lock:
            self._add(calls=1, usd=usd, tokens=tokens)

    def worked(self) -> None:
        """A turn was done, and not taken from disk."""
        with self._lock:
            self._add(worked=1)

    def resolved(self, resolution: TurnRecord | Skipped | BaseException) -> None:
        """What became of a turn is known."""
        judged = isinstance(resolution, TurnRecord)
        correct = isinstance(resolution, TurnRecord) and resolution.verdict.correct
        with self._lock:
            self._add(resolved=1, judged=int(judged), correct=int(correct))

    def progress(self) -> Progress:
        """Where the session is."""
        with self._lock:
            now = self._clock()
            busy_s = self._counts.busy_s + (now - self._busy_since if self._running else 0.0)
            times = {
                "elapsed_s": now - self._started,
                "busy_s": busy_s,
                "measuring_s": 0.0 if self._first is None else now - self._first,
            }
            return self._counts.model_copy(update=times)

    def _add(self, **changes: float) -> None:
        values = {name: getattr(self._counts, name) + value for name, value in changes.items()}
        self._counts = self._counts.model_copy(update=values)
