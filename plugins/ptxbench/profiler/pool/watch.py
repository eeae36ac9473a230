"""What becomes of a device that something is wrong with: a state machine without threads, clocks or devices.

``ready -> paused -> qualifying -> ready`` for what passes (heat, others on the device, a drifting library);
``ready -> restarting -> qualifying -> ready`` for what a new oracle cures (memory errors, a stuck or dead one);
``-> quarantined`` when either does not help, and from there another try, later and later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ptxbench.profiler.pool.readings import Alarm, AlarmKind

State = Literal["ready", "paused", "restarting", "qualifying", "quarantined"]

CURED_BY_RESTART: frozenset[AlarmKind] = frozenset({"ecc", "stuck", "oracle", "failing"})
"""An uncorrectable error ends the contexts on the device; a stuck or dead oracle has to go anyway; and one that fails
again and again may have run out of something."""


@dataclass(frozen=True)
class Limits:
    """Times of the watch, seconds. All ours: long beside what they wait for, short beside a run."""

    poll_s: float = 1.0
    """Between two looks at an idle device."""
    calm_s: float = 3.0
    """Readings must be good for this long before a paused device qualifies."""
    pause_s: float = 900.0
    """A device that is paused for longer is quarantined."""
    stuck_s: float = 2340.0
    """An operation may take this long. Shorter than the local profiler's own limit, longer than what it covers."""
    attempts: int = 3
    """Starts or qualifying runs in a row that may fail."""
    retry_s: float = 2.0
    """Between two of them."""
    quarantine_s: float = 60.0
    """Before a quarantined device is tried again; doubles each time."""
    quarantine_most_s: float = 1800.0


class Event(NamedTuple):
    """A device came to be in a state."""

    at: float
    state: State
    reason: str


class DeviceWatch:
    """The state of one device. Times are seconds of any clock that does not go back."""

    def __init__(self, limits: Limits, now: float) -> None:
        """A device begins by being started."""
        self._limits = limits
        self.state: State = "restarting"
        self.reason = "starting"
        self.kind: AlarmKind | None = None
        """What it is not ready for; None before the first alarm and when ready."""
        self.since = now
        self.events: list[Event] = []
        self.alarms = 0
        """How many there were: whoever measured meanwhile sees that there was another."""
        self._calm_since: float | None = None
        self._failures = 0
        self._not_before = now
        self._quarantine_s = limits.quarantine_s
        self._started = False
        self.lost = False
        """An operation on it does not return, so neither does whoever looks after the device."""

    def alarm(self, alarm: Alarm, now: float) -> None:
        """Something is wrong. Of a device that is not ready, the new alarm is the reason from now on, unless a restart
        is due: that is not made needless by what passes, and a qualifying run behind it looks again."""
        self.alarms += 1
        self._calm_since = None
        if self.state == "quarantined":
            return
        if (self.state, self.kind) == ("paused", alarm.kind):
            return  # still; the first message says what it began with
        if self.state == "restarting" and alarm.kind not in CURED_BY_RESTART:
            return
        self.kind = alarm.kind
        if alarm.kind in CURED_BY_RESTART:
            self._enter("restarting", alarm.message, now)
        else:
            self._enter("paused", alarm.message, now)

    def calm(self, now: float) -> None:
        """Readings are good."""
        if self.state != "paused":
            return
        self._calm_since = now if self._calm_since is None else self._calm_since
        if now - self._calm_since >= self._limits.calm_s and now >= self._not_before:
            self._enter("qualifying", self.reason, now)

    def started(self, now: float) -> None:
        """The oracle runs. The first time there is nothing yet that the device would have to be like."""
        first, self._started = not self._started, True
        if not first:
            self._enter("qualifying", self.reason, now)
            return
        self._failures = 0
        self._enter("ready", "", now)
        if self.events[:-1] == []:
            self.events.clear()  # that a device was started is nothing to tell

    def start_failed(self, message: str, now: float, *, final: bool = False) -> None:
        """The oracle does not start. ``final``: nor will it."""
        self._failed("restarting", f"the oracle does not start: {message}", now, final=final)

    def qualified(self, now: float) -> None:
        """The qualifying run was within bounds."""
        self._failures, self._quarantine_s, self.kind = 0, self._limits.quarantine_s, None
        self._enter("ready", "", now)

    def disqualified(self, message: str, now: float) -> None:
        """The qualifying run was not."""
        self._failed("paused", f"the qualifying run failed: {message}", now)

    def abandon(self, message: str, now: float) -> None:
        """An operation did not return when it was ended by force."""
        self.alarms += 1
        self.kind, self.lost = "stuck", True
        self._quarantine(message, now)

    def tick(self, now: float) -> None:
        """Time passes."""
        if self.state == "paused" and now - self.since > self._limits.pause_s:
            self._quarantine(f"paused for {now - self.since:.0f} s: {self.reason}", now)
        elif self.state == "quarantined" and now >= self._not_before:
            self._failures = self._limits.attempts - 1  # one try
            self._enter("restarting", self.reason, now)

    def may_try(self, now: float) -> bool:
        """Whether a start or a qualifying run is due: at once, but some time after one that failed."""
        return now >= self._not_before

    @property
    def ready(self) -> bool:
        """Whether the device may measure."""
        return self.state == "ready"

    def _failed(self, state: State, reason: str, now: float, *, final: bool = False) -> None:
        self._failures += 1
        if final or self._failures >= self._limits.attempts:
            self._quarantine(reason, now)
            return
        self._not_before = now + self._limits.retry_s
        self._calm_since = None
        self._enter(state, reason, now)

    def _quarantine(self, reason: str, now: float) -> None:
        self._not_before = now + self._quarantine_s
        self._quarantine_s = min(2 * self._quarantine_s, self._limits.quarantine_most_s)
        self._enter("quarantined", reason, now)

    def _enter(self, state: State, reason: str, now: float) -> None:
        if (state, reason) == (self.state, self.reason):
            return
        if state != self.state:
            self.since = now
        self.state, self.reason = state, reason
        self.events.append(Event(now, state, reason))
