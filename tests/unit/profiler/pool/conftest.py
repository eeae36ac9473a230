from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.pool.watch import Limits
from ptxbench.profiler.replay import EVIDENCE_SUFFIX, save_evidence
from tests.support.pool_devices import ReplayDevice
from tests.unit.factories import make_evidence, suite_case
from tests.unit.profiler.pool.parts import CASES, QUICK

Open = Callable[..., tuple[DevicePool, list[ReplayDevice]]]


@pytest.fixture
def evidence(tmp_path: Path) -> Path:
    """A folder with evidence of the same build on every primary case."""
    for name in CASES:
        save_evidence(make_evidence(suite_case(name)), tmp_path / f"{name}{EVIDENCE_SUFFIX}")
    return tmp_path


@pytest.fixture
def open_pool(evidence: Path) -> Iterator[Open]:
    """Opens a pool of so many devices that replay."""
    opened: list[tuple[DevicePool, list[ReplayDevice]]] = []

    def make(count: int, limits: Limits = QUICK, **options: Any) -> tuple[DevicePool, list[ReplayDevice]]:
        stopped = options.pop("stopped", lambda: False)
        devices = {f"GPU-{index}": ReplayDevice(f"GPU-{index}", evidence, **options) for index in range(count)}
        pool = DevicePool(
            list(devices),
            lambda name: devices[name],
            lambda device: device,  # type: ignore[arg-type,return-value]
            stopped=stopped,
            limits=limits,
        )
        opened.append((pool, list(devices.values())))
        return opened[-1]

    yield make
    for pool, devices in opened:
        for device in devices:
            device.released.set()
        pool.close()
        assert [device.overlaps for device in devices] == [0] * len(devices)
