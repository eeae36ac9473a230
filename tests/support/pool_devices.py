"""Devices for a pool: stored evidence, replayed by the real replay profiler, in the time that a device would take."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool.readings import Readings
from ptxbench.profiler.protocol import Health, SafetyTool
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.profiler.state_key import state_key
from ptxbench.records import BaselineMeasurement, DeviceIdentity, Evidence, InstructionEvidence, SafetyEvidence
from tests.unit.factories import DEVICE

if TYPE_CHECKING:
    from ptxbench.cases.case import Case
    from ptxbench.toolchain import Built


class ReplayDevice:
    """One device. It does one thing at a time, or the test fails; faults are put in by ``before`` each operation."""

    origin: Literal["measured", "replayed"] = "measured"

    def __init__(self, name: str, evidence: Path, *, takes_s: float = 0.01, builds_s: float = 0.03) -> None:
        self.name = name
        self.takes_s, self.builds_s = takes_s, builds_s
        self.identity: DeviceIdentity = DEVICE
        self.readings = Readings(temperature_c=45, slowdown_c=90, thermal_ns=0, ecc_uncorrected=0)
        self.before: Callable[[ReplayDevice, str], None] = lambda device, operation: None
        self.change: Callable[[Evidence], Evidence] = lambda evidence: evidence
        self.deaf = False
        """Whether it goes on when it is interrupted, until ``released``."""
        self.released = threading.Event()
        self.slower = 1.0
        self.log: list[tuple[str, str, float, float]] = []
        """Operation, case, begin, end."""
        self.starts = 0
        self.closed = False
        self.overlaps = 0
        self.builds = 0
        self._replay = ReplayProfiler([evidence])
        self._states: dict[str, int] = {}
        self._running = False
        self._busy = threading.Lock()
        self._interrupted = threading.Event()

    def start(self) -> DeviceIdentity:
        if not self._running:
            self.before(self, "start")
            self.starts += 1
            self._running = True
            self._interrupted.clear()
        return self.identity

    def restart(self) -> DeviceIdentity:
        self._running = False
        self._states.clear()
        return self.start()

    def read(self) -> Readings:
        """It is its own reader."""
        return self.readings

    @property
    def states(self) -> dict[str, int]:
        return dict(self._states)

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        with self._operation("evaluate", case) as cached:
            evidence = self._replay.evaluate(case, built)
            if evidence is None:
                return None
            run = evidence.run.model_copy(update={"workload_state_cached": cached})
            return self.change(evidence.model_copy(update={"run": run}))

    def instructions(self, case: Case, built: Built) -> InstructionEvidence:
        with self._operation("instructions", case):
            return self._replay.instructions(case, built)

    def sanitize(self, case: Case, built: Built, tool: SafetyTool) -> SafetyEvidence:
        with self._operation("sanitize", case):
            return self._replay.sanitize(case, built, tool)

    def qualify(self, case: Case) -> BaselineMeasurement:
        with self._operation("qualify", case):
            baseline = next(
                evidence.run.baseline
                for key, evidence in self._replay._evidence().items()
                if (key.definition, key.workload_uuid) == (case.definition.name, case.workload.uuid)
            )
            assert baseline is not None
            spans = tuple(int(span * self.slower) for span in baseline.span_ns)
            return baseline.model_copy(update={"span_ns": spans})

    def interrupt(self) -> None:
        self._interrupted.set()

    def health(self) -> Health:
        return Health(kind="replay", device=self.start(), message=self.name)

    def close(self) -> None:
        self._running, self.closed = False, True

    def die(self) -> None:
        """As an oracle does: with all its states."""
        self._running = False
        self._states.clear()
        raise InfrastructureError("oracle_died", f"the oracle of {self.name} ended")

    def wait(self, seconds: float) -> None:
        """An operation goes on; ends early with ``oracle_died`` when somebody interrupts it."""
        if self.deaf:
            self.released.wait(30)
        elif self._interrupted.wait(seconds):
            self.die()

    @contextmanager
    def _operation(self, operation: str, case: Case) -> Iterator[bool]:
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            raise AssertionError(f"{operation} beside another operation on {self.name}")
        begin = time.monotonic()
        try:
            self.start()
            self.before(self, operation)
            key = state_key(case)
            cached = key in self._states
            self.builds += not cached
            self._states[key] = self._states.pop(key, 1 << 30)
            self.wait(self.takes_s + (0.0 if cached else self.builds_s))
            yield cached
        finally:
            self.log.append((operation, case.name, begin, time.monotonic()))
            self._busy.release()

    def done(self, operation: str = "evaluate") -> int:
        return sum(each[0] == operation for each in self.log)


def median_ns(evidence: Evidence | None) -> float:
    """The library's latency of an evidence."""
    assert evidence is not None
    assert evidence.run.baseline is not None
    return statistics.median(evidence.run.baseline.span_ns)
