"""Asking a model until it answers: retries with backoff, pauses that all conversations of a model share."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.models.client import (
    CANCELLED,
    CONTEXT_EXHAUSTED,
    LASTING,
    REFUSED,
    TRANSIENT,
    ModelClient,
    ModelError,
    Request,
)
from ptxbench.plain import plain
from ptxbench.records import FailedAttempt, Reply
from ptxbench.records.texts import placeless

ATTEMPTS = 8
"""Calls for one reply, the first included."""
FIRST_PAUSE_S = 1.0
"""Before the second attempt, on average three quarters of it; each further pause is twice as long."""
LONGEST_PAUSE_S = 120.0
"""Bound of the doubling. What a provider itself asks for is honoured beyond it."""
LONGEST_WAIT_S = 1800.0
"""Sum of the pauses for one reply. A provider that asks for more has no answer for this run now."""
_LOOK_S = 0.2
"""How often a pause looks whether the run was stopped."""

CROWDED = frozenset({"rate_limited", "overloaded"})
"""Errors that say something of the provider and not of the call: everybody waits, instead of hammering it in turns."""


class ContextExhaustedError(Exception):
    """The conversation no longer fits the model. ``attempts`` failed before that was said."""

    def __init__(self, message: str, attempts: tuple[FailedAttempt, ...]) -> None:
        super().__init__(message)
        self.attempts = attempts


class Answer(NamedTuple):
    """A reply, and what it took."""

    reply: Reply
    attempts: tuple[FailedAttempt, ...]
    """Those that failed before it."""


class Asker:
    """Calls one model's client. Safe for several threads, one conversation each.

    ``stopped`` is whether the run is being stopped: pauses end then. ``clock`` and ``sleep`` are seconds.
    """

    def __init__(
        self,
        client: ModelClient,
        name: str,
        stopped: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._name = name
        self._stopped = stopped
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._crowded_until = 0.0
        self._lasting: ModelError | None = None
        self._answered = False

    def ask(self, request: Request) -> Answer:
        """The model's reply.

        Raises ContextExhaustedError, or InfrastructureError ``model_KIND``: at once for errors that another attempt
        would meet again, and from then on for every request; else when attempts or patience are used up, or the run
        is stopped.
        """
        failed: list[FailedAttempt] = []
        while True:
            self._wait_for_room()
            try:
                reply = self._client.complete(request)
                self._answered = True
                return Answer(reply, tuple(failed))
            except ModelError as error:
                if error.kind == CONTEXT_EXHAUSTED:
                    raise ContextExhaustedError(plain(str(error)), tuple(failed)) from error
                pause = self._pause(error, failed)
                message = placeless(plain(str(error)))
                failed.append(FailedAttempt(kind=error.kind, message=message, waited_s=round(pause, 3)))
                if error.kind in CROWDED:
                    self._announce(pause)
                self._wait_until(self._clock() + pause)

    def _pause(self, error: ModelError, failed: list[FailedAttempt]) -> float:
        """Seconds to wait before the next attempt. Raises InfrastructureError where there is none."""
        if error.kind == CANCELLED or self._stopped():
            raise self._fault(CANCELLED, "the call was cancelled") from error
        if error.kind in LASTING or (error.kind in REFUSED and not self._answered):
            # Before the first answer a refused request is a wrong setting; later it is something of this conversation.
            with self._lock:
                self._lasting = self._lasting or error
            raise self._lasting_fault(error) from error
        if error.kind in REFUSED:
            raise self._fault(error.kind, str(error)) from error
        assert error.kind in TRANSIENT, error.kind
        if len(failed) + 1 >= ATTEMPTS:
            raise self._fault(error.kind, f"{ATTEMPTS} attempts failed, the last one: {error}") from error
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** len(failed)) * random.uniform(0.5, 1.0)
        if error.retry_after_s is not None:
            # A little later than asked for, so that not everybody comes back in the same moment.
            pause = max(pause, error.retry_after_s + random.uniform(0.0, FIRST_PAUSE_S / 2))
        waited = sum(attempt.waited_s for attempt in failed)
        if waited + pause > LONGEST_WAIT_S:
            message = f"{error}; waited {waited:.0f} s for it already, and the next attempt would be {pause:.0f} s away"
            if error.kind in CROWDED:
                self._announce(pause)
            raise self._fault(error.kind, message) from error
        return pause

    def _lasting_fault(self, error: ModelError) -> InfrastructureError:
        return self._fault(error.kind, f"{error} (no further call is made to it in this session)")

    def _fault(self, kind: str, message: str) -> InfrastructureError:
        return InfrastructureError(f"model_{kind}", plain(f"{self._name}: {message}"))

    def _announce(self, pause: float) -> None:
        with self._lock:
            self._crowded_until = max(self._crowded_until, self._clock() + pause)

    def _wait_for_room(self) -> None:
        """Let the pause pass that another conversation met. Raises the error that holds for all of them."""
        while True:
            with self._lock:
                if self._lasting is not None:
                    raise self._lasting_fault(self._lasting)
                until = self._crowded_until
            left = until - self._clock()
            if left <= 0:
                return
            if left > LONGEST_WAIT_S:
                message = f"the provider asked to come back in {left:.0f} s; resume the run then"
                raise self._fault("rate_limited", message)
            self._wait_until(until)

    def _wait_until(self, moment: float) -> None:
        while (left := moment - self._clock()) > 0:
            if self._stopped():
                raise self._fault(CANCELLED, "the run was stopped before the next attempt")
            self._sleep(min(left, _LOOK_S))
