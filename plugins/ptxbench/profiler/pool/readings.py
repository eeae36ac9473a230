"""What a device says of itself between operations, and what in that is an alarm.

Readings are taken before and after an operation and while a device is idle, never beside a timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from ptxbench.records import POWER_LIMIT

AlarmKind = Literal[
    "temperature", "throttled", "ecc", "foreign_process", "baseline_drift", "stuck", "oracle", "failing"
]

COOL_BY_C = 5
"""A device that was too hot is cool again this far below the limit, so that it does not swing about it."""
THERMAL_SHARE = 0.01
"""Heat that held the clock down for less of the time between two looks moves no latency by as much as 1%, to which
latencies repeat (docs/performance.md)."""


@dataclass(frozen=True)
class Readings:
    """One look at a device. None and empty: it does not tell, or there is nothing to tell."""

    at_s: float = 0.0
    """When, of a clock that does not go back."""
    temperature_c: int | None = None
    slowdown_c: int | None = None
    """Temperature at which the device slows itself down."""
    limited_by: tuple[str, ...] = ()
    """What holds the clock down now, in the words of ``clocks.REASONS``."""
    thermal_ns: int | None = None
    """How long heat held the clock down since the driver was loaded, ns: what happened between two looks shows."""
    ecc_uncorrected: int | None = None
    """Memory errors that could not be corrected, since the driver was loaded."""
    foreign: tuple[str, ...] = ()
    """Processes that compute on the device and are not PTXBench's."""


class Reader(Protocol):
    """Looks at one device."""

    def read(self) -> Readings:
        """What the device says now. Raises nothing."""


class Alarm(NamedTuple):
    """Why a device must not measure."""

    kind: AlarmKind
    message: str
    """For people; begins in lower case, names what was found and what was expected."""


def alarm_of(now: Readings, before: Readings | None = None, *, hot: bool = False) -> Alarm | None:
    """What is wrong with a device by its readings: now, or between ``before`` and now.

    ``hot``: it was paused, and must be cooler than the limit by ``COOL_BY_C``.
    """
    before = before or now
    if _grew(before.ecc_uncorrected, now.ecc_uncorrected):
        return Alarm("ecc", f"uncorrectable memory errors went from {before.ecc_uncorrected} to {now.ecc_uncorrected}")
    if now.temperature_c is not None and now.slowdown_c is not None:
        limit = now.slowdown_c - (COOL_BY_C if hot else 0)
        if now.temperature_c >= limit:
            return Alarm("temperature", f"{now.temperature_c} C, expected less than {limit} C")
    held = [reason for reason in now.limited_by if reason != POWER_LIMIT]
    if held:
        return Alarm("throttled", f"the clock is held down: {', '.join(held)}")
    if _grew(before.thermal_ns, now.thermal_ns):
        spent_s = ((now.thermal_ns or 0) - (before.thermal_ns or 0)) / 1e9
        if spent_s > THERMAL_SHARE * (now.at_s - before.at_s):
            return Alarm("throttled", f"heat held the clock down for {spent_s * 1e3:.1f} ms")
    if now.foreign:
        return Alarm("foreign_process", f"other processes compute on the device: {', '.join(now.foreign)}")
    return None


def _grew(before: int | None, now: int | None) -> bool:
    return before is not None and now is not None and now > before


class NoReader:
    """Of a device that nothing is known of."""

    def read(self) -> Readings:
        """Nothing."""
        return Readings()
