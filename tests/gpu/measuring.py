"""What tests of several GPUs share: reference candidates, their verdicts, devices that outlive a pool."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptxbench.profiler.local import LocalProfiler
from ptxbench.profiler.pool.nvml import open_reader
from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.records import Candidate, Evidence, Verdict
from ptxbench.verdict import judge
from tests.gpu.conftest import ROOT

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.profiler.pool.readings import Reader, Readings
    from ptxbench.toolchain import Built, Toolchain


def reference(case: Case, toolchain: Toolchain) -> Built:
    """The stored solution of a case, built."""
    source = (ROOT / "generated" / "reference" / "h100" / case.name / "kernel.cu").read_text()
    return toolchain.build(Candidate(source=source), case.arch)


def latency_ns(evidence: Evidence) -> float:
    """Median over trials of the median over calls."""
    return statistics.median(statistics.median(trial.timing.span_ns) for trial in evidence.run.trials if trial.timing)


def judged(case: Case, built: Built, evidence: Evidence) -> Verdict:
    return judge(case, built.build, evidence)


class KeptDevice(LocalProfiler):
    """A device whose oracle outlives the pools that use it, and that remembers what it measured."""

    def __init__(self, name: str) -> None:
        super().__init__(root=ROOT, visible=name)
        self.measured: list[tuple[str, float]] = []
        """Case and latency, ns."""
        self.ends: list[float] = []
        """When each was done, s."""
        self.stages_ms: list[tuple[str, dict[str, float]]] = []
        """Case and what its evaluation took by stage; ``asked`` is the whole of it as whoever asks sees it."""
        self.readings_ms: list[float] = []
        """What each look at the device took."""

    def evaluate(self, case: Case, built: Built) -> Evidence | None:
        begin = time.perf_counter()
        evidence = super().evaluate(case, built)
        assert evidence is not None
        asked = {"asked": (time.perf_counter() - begin) * 1e3}
        self.measured.append((case.name, latency_ns(evidence)))
        self.ends.append(time.monotonic())
        self.stages_ms.append((case.name, evidence.run.stages_ms | asked))
        return evidence

    def forget(self) -> None:
        """What is measured from now on counts."""
        self.measured.clear()
        self.ends.clear()
        self.stages_ms.clear()
        self.readings_ms.clear()

    def close(self) -> None:
        """A pool is done with it."""

    def end(self) -> None:
        super().close()


class TimedReader:
    """Readings, and what taking them took."""

    def __init__(self, reader: Reader, times_ms: list[float]) -> None:
        self._reader = reader
        self._times_ms = times_ms

    def read(self) -> Readings:
        begin = time.perf_counter()
        try:
            return self._reader.read()
        finally:
            self._times_ms.append((time.perf_counter() - begin) * 1e3)


def reader_of(device: Any) -> Reader:
    return TimedReader(open_reader(device.uuid, lambda: device.oracle_pid), device.readings_ms)


def pool_of(devices: Sequence[KeptDevice]) -> DevicePool:
    by_name = {str(device.visible): device for device in devices}
    return DevicePool(list(by_name), by_name.__getitem__, reader_of)


def warm(devices: Sequence[KeptDevice], work: Sequence[tuple[Case, Built]]) -> None:
    """Have every state on every device, which rests then."""

    def build(device: KeptDevice) -> None:
        for case, built in work:
            device.evaluate(case, built)
        device.forget()

    with ThreadPoolExecutor(len(devices)) as executor:
        list(executor.map(build, devices))


@dataclass
class Steady:
    """What a pool did while it was fed without a pause."""

    per_minute: float
    latencies: dict[str, dict[str, float]] = field(default_factory=dict)
    """Device -> case -> median latency, ns."""
    counts: dict[str, int] = field(default_factory=dict)
    """Device -> evaluations."""
    stages_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    """Device -> stage -> mean over evaluations, 0 for what did not happen; ``readings`` is the pool's own."""


def feed(devices: Sequence[KeptDevice], work: Sequence[tuple[Case, Built]], seconds: float, threads: int) -> Steady:
    """Evaluate the workloads in turns for so long, and what has begun then to its end."""
    pool = pool_of(devices)
    for device in devices:
        device.forget()
    supply, lock, deadline = itertools.cycle(work), threading.Lock(), time.monotonic() + seconds

    def client() -> None:
        while time.monotonic() < deadline:
            with lock:
                case, built = next(supply)
            assert pool.evaluate(case, built) is not None

    try:
        run_threads(client, threads)
    finally:
        pool.close()
    found = Steady(per_minute=sum(rate(device, len(work)) for device in devices))
    for device in devices:
        by_case: dict[str, list[float]] = {}
        for name, latency in device.measured:
            by_case.setdefault(name, []).append(latency)
        found.latencies[str(device.visible)] = {name: statistics.median(each) for name, each in by_case.items()}
        found.counts[str(device.visible)] = len(device.measured)
        readings = {"readings": sum(device.readings_ms) / max(1, len(device.measured))}
        found.stages_ms[str(device.visible)] = means([stages for _, stages in device.stages_ms]) | readings
    return found


def rate(device: KeptDevice, workloads: int) -> float:
    """Evaluations per minute with each workload as often as any other: from the mean time between the end of one of
    them and the end before it. What a limited time cuts off at its ends is no part of it, whichever workload that is.
    """
    gaps: dict[str, list[float]] = {}
    for (name, _), before, end in zip(device.measured[1:], device.ends, device.ends[1:], strict=False):
        gaps.setdefault(name, []).append(end - before)
    assert len(gaps) == workloads
    return 60 * workloads / sum(map(statistics.mean, gaps.values()))


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each key, where a row that lacks it counts as 0."""
    keys = {key: None for row in rows for key in row}
    return {key: round(sum(row.get(key, 0.0) for row in rows) / len(rows), 2) for key in keys}


def run_threads(target: Callable[[], None], count: int) -> None:
    """Run it in so many threads; the first error of any is raised."""
    with ThreadPoolExecutor(count) as executor:
        for future in [executor.submit(target) for _ in range(count)]:
            future.result()
