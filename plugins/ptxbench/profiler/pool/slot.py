"""One device of the pool: its profiler, its readings and its watch. Everything here runs in the device's own thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool.readings import Alarm, AlarmKind, NoReader, Reader, Readings, alarm_of
from ptxbench.profiler.pool.scheduler import Task
from ptxbench.profiler.pool.watch import CURED_BY_RESTART, DeviceWatch, Limits
from ptxbench.profiler.protocol import Profiler
from ptxbench.profiler.state_key import state_key
from ptxbench.records import BaselineMeasurement, DeviceIdentity, Evidence
from ptxbench.records.evidence import DRIFT_BOUND

if TYPE_CHECKING:
    from ptxbench.cases.case import Case

ORACLE_FAULTS = frozenset({"oracle_died", "oracle_timeout"})
"""Faults after which there is no oracle."""
DEVICE_FAULTS = frozenset({"sandbox_failed", "busy_device", "out_of_device_memory"})
"""Faults that another device may not have. One that fails at once is idle at once: all work would go there."""
FAULTS_IN_ROW = 3
"""One of them may pass; as many as a start may fail (``Limits.attempts``) say that the device is not well."""
FINAL_FAULTS = frozenset({"no_device", "device_mismatch"})
"""Faults that starting again at once does not cure."""
FRESH_S = 0.2
"""Readings of this age are as good as new ones: a look takes some ms, which a short evaluation need not pay twice."""
DRIFTS_IN_ROW = 2
"""One drifting evaluation may be its candidate's doing; another right behind it says that the device has changed."""


class DeviceProfiler(Profiler, Protocol):
    """A profiler of one device, which can be started, checked and ended by force."""

    def start(self) -> DeviceIdentity:
        """Be ready to measure. Raises InfrastructureError."""

    def restart(self) -> DeviceIdentity:
        """The same with everything anew. Raises InfrastructureError."""

    def qualify(self, case: Case) -> BaselineMeasurement:
        """The library of ``case`` checked and timed anew. Raises InfrastructureError."""

    def interrupt(self) -> None:
        """End whatever goes on, from any thread: its caller has InfrastructureError("oracle_died")."""

    @property
    def states(self) -> Mapping[str, int]:
        """Bytes by ``state_key`` of what is resident, least recently used first."""


@dataclass
class Job:
    """One operation that somebody waits for."""

    task: Task
    case: Case
    call: Callable[[DeviceProfiler], Any]
    future: Future[Any]
    again: bool = False
    """Whether it was begun before, and disturbed."""


class Outcome(NamedTuple):
    """What came of a job on a device."""

    value: Any = None
    error: BaseException | None = None
    alarm: Alarm | None = None
    """What the device's watch has to hear."""
    begun: bool = True
    disturbed: str = ""
    """Why the result cannot be relied on; empty if it can."""
    elsewhere: bool = False
    """It is worth another device, and not the same one once more."""
    flagged: bool = False
    """The evidence itself tells of the disturbance, so that the judge knows: it may be published all the same."""


class Slot:
    """A device's place in the pool."""

    def __init__(
        self,
        index: int,
        name: str,
        profiler: DeviceProfiler,
        open_reader: Callable[[DeviceProfiler], Reader],
        limits: Limits,
    ) -> None:
        self.index = index
        self.name = name
        self.profiler = profiler
        self.watch = DeviceWatch(limits, time.monotonic())
        self.identity: DeviceIdentity | None = None
        """Of a device that was started and belongs to the pool."""
        self.error: InfrastructureError | None = None
        """Why it did not start, the last time that it did not."""
        self.job: Job | None = None
        """What it was given; None again when that is settled, or was taken away from it."""
        self.since = 0.0
        self.looked_at = 0.0
        self.readings = Readings()
        self.stuck: Alarm | None = None
        self._open_reader = open_reader
        self._reader: Reader = NoReader()
        self._yardstick: tuple[Case, float] | None = None
        """What was measured last, and the median of its library here, ns."""
        self._drifts = 0
        self._faults = 0

    def start(self) -> DeviceIdentity:
        """Start the profiler, anew if that is the cure, and look at the device from now on.

        Raises InfrastructureError.
        """
        anew = self.watch.kind in CURED_BY_RESTART
        identity = self.profiler.restart() if anew else self.profiler.start()
        self._reader = self._open_reader(self.profiler)
        self.look()
        return identity

    def look(self) -> tuple[Readings, Readings]:
        """The readings before, and now."""
        before, self.readings = self.readings, self._reader.read()
        self.looked_at = time.monotonic()
        return before, self.readings

    def poll(self) -> Alarm | None:
        """Look at an idle device."""
        before, now = self.look()
        return alarm_of(now, before, hot=not self.watch.ready)

    def measure(self, job: Job) -> Outcome:
        """Do the job, with a look at the device before and behind it."""
        now = self.readings
        # What was seen a moment ago behind another operation was no alarm, or the device would not be ready.
        if time.monotonic() - self.looked_at > FRESH_S:
            before, now = self.look()
            if alarm := alarm_of(now, before):
                return Outcome(alarm=alarm, begun=False)
        try:
            value = job.call(self.profiler)
        except InfrastructureError as error:
            return self._ended(error)
        except BaseException as error:
            return Outcome(error=error)
        self._faults = 0
        alarm = alarm_of(self.look()[1], now)
        if alarm is not None:
            timed = isinstance(value, Evidence) or alarm.kind == "ecc"
            return Outcome(value, alarm=alarm, disturbed=alarm.message if timed else "")
        return self._flagged(job, value) if isinstance(value, Evidence) else Outcome(value)

    def qualify(self) -> str:
        """Why the device does not qualify; empty if it does. Without anything to compare with, it does.

        Raises InfrastructureError where there is no oracle any more.
        """
        if self._yardstick is None:
            self.profiler.start()
        else:
            case, expected = self._yardstick
            try:
                found = statistics.median(self.profiler.qualify(case).span_ns)
            except InfrastructureError as error:
                if error.kind in ORACLE_FAULTS:
                    raise
                return f"{case.name}: {error}"
            if abs(found / expected - 1) > DRIFT_BOUND:
                return (
                    f"{case.name}: {case.baseline.call} took {found / 1e3:.1f} us, expected within {DRIFT_BOUND:.0%} "
                    f"of the {expected / 1e3:.1f} us that it took before"
                )
            self._drifts = 0
        self._faults = 0
        before, now = self.look()
        alarm = alarm_of(now, before)
        return alarm.message if alarm else ""

    def _ended(self, error: InfrastructureError) -> Outcome:
        if error.kind in DEVICE_FAULTS:
            self._faults += 1
            message = f"{error.kind}: {error}"
            failing = Alarm("failing", f"{self._faults} operations in a row failed, at last with {message}")
            alarm = failing if self._faults >= FAULTS_IN_ROW else None
            return Outcome(error=error, alarm=alarm, disturbed=message, elsewhere=True)
        if error.kind not in ORACLE_FAULTS:
            return Outcome(error=error)
        alarm, self.stuck = self.stuck or Alarm("oracle", str(error)), None
        if alarm.kind == "stuck":
            error = InfrastructureError("oracle_timeout", alarm.message)
        return Outcome(error=error, alarm=alarm, disturbed=alarm.message)

    def _flagged(self, job: Job, evidence: Evidence) -> Outcome:
        """What the evidence tells of the device that it was taken on."""
        run = evidence.run
        baseline = run.baseline
        for each in run.disturbances:
            if each.disturbing:
                # The same kinds by the same names, seen within the evaluation.
                alarm = Alarm(cast("AlarmKind", each.kind.value), each.message)
                return Outcome(evidence, alarm=alarm, disturbed=each.message, flagged=True)
        if baseline is None:
            return Outcome(evidence)
        if not baseline.drifted:
            self._drifts = 0
            self._remember(job, baseline)
            return Outcome(evidence)
        self._drifts += 1
        found, stored = statistics.median(baseline.drift_span_ns), statistics.median(baseline.span_ns)
        message = (
            f"{baseline.call} beside a candidate took {found / 1e3:.1f} us, expected within {DRIFT_BOUND:.0%} of "
            f"{stored / 1e3:.1f} us"
        )
        drift = Alarm("baseline_drift", message) if self._drifts >= DRIFTS_IN_ROW else None
        return Outcome(evidence, alarm=drift, disturbed=message, flagged=True)

    def _remember(self, job: Job, baseline: BaselineMeasurement) -> None:
        """A library that was measured and did not drift is what the device has to be like later."""
        known = self._yardstick
        if known is None or state_key(known[0]) != job.task.state:
            self._yardstick = (job.case, statistics.median(baseline.span_ns))
