"""Who uses the device next: what goes on with a candidate, then what begins with another, then what can wait."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ptxbench.errors import InfrastructureError


class DeviceQueue:
    """A lock with three classes of waiters, for any number of threads.

    Operations that continue with a candidate (memcheck, instruction counts) come before those that begin with one, so
    that few candidates are half measured at any time and each is answered as early as it can be. Long checks that no
    number waits for come last: they fill the time in which models write. Who waits to begin is one of finitely many
    trajectories, each of which has such checks itself, so those are never put off for ever. When ``stopped`` says that
    the session ends, those that wait to begin, or for such a check, are told so; what else was begun is finished.
    """

    def __init__(self, stopped: Callable[[], bool] = lambda: False) -> None:
        self._stopped = stopped
        self._condition = threading.Condition()
        self._taken = False
        self._continuing = 0
        self._beginning = 0

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Hold the device for a new candidate. Raises InfrastructureError("stopped")."""
        with self._condition:
            self._beginning += 1
            try:
                self._condition.wait_for(lambda: self._stopped() or not (self._taken or self._continuing))
                # A release wakes everybody, so the end of the operation in progress is when waiters hear of a stop.
                if self._stopped():
                    raise InfrastructureError("stopped", "the run ends: this candidate was not measured")
                self._taken = True
            finally:
                self._beginning -= 1
                if not self._taken:
                    self._condition.notify_all()  # a check may have waited for this one alone
        yield from self._held()

    @contextmanager
    def continuing(self) -> Iterator[None]:
        """Hold the device to go on with what was begun."""
        with self._condition:
            self._continuing += 1
            try:
                self._condition.wait_for(lambda: not self._taken)
                self._taken = True
            finally:
                self._continuing -= 1
        yield from self._held()

    @contextmanager
    def yielding(self) -> Iterator[None]:
        """Hold the device for what all others go before. Raises InfrastructureError("stopped")."""
        with self._condition:
            self._condition.wait_for(
                lambda: self._stopped() or not (self._taken or self._continuing or self._beginning)
            )
            # Such checks take minutes: whoever ends a session is not made to wait for them.
            if self._stopped():
                raise InfrastructureError("stopped", "the run ends: this candidate was not checked to the end")
            self._taken = True
        yield from self._held()

    def _held(self) -> Iterator[None]:
        try:
            yield
        finally:
            with self._condition:
                self._taken = False
                self._condition.notify_all()
