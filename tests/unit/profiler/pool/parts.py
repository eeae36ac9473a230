"""What the tests of the pool share."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.pool.watch import Limits
from ptxbench.toolchain import Built
from tests.support.pool_devices import ReplayDevice
from tests.unit.factories import make_build, suite_case

CASES = ("gemm_n7168_k5120", "mha_with_lse_d128", "mha_with_lse_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal")
QUICK = Limits(poll_s=0.02, calm_s=0.04, pause_s=30.0, stuck_s=30.0, retry_s=0.02, quarantine_s=0.3)
"""Seconds become hundredths."""
SOON_S = 10.0
HOT = 93
"""Degrees Celsius, beyond where a device slows down."""


def built() -> Built:
    return Built(make_build(), Path("/builds/kernel.so"))


def evaluate(pool: DevicePool, case: str = CASES[0]) -> Any:
    return pool.evaluate(suite_case(case), built())


def together(pool: DevicePool, cases: list[str], threads: int = 16) -> list[Any]:
    """Ask for all at once; results or errors in the order asked."""
    with ThreadPoolExecutor(threads) as executor:
        futures: list[Future[Any]] = [executor.submit(evaluate, pool, case) for case in cases]
        return [future.exception() or future.result() for future in futures]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def states(pool: DevicePool) -> list[str]:
    return [device.state for device in pool.health().devices]


def once(
    action: Callable[[ReplayDevice], None], operation: str = "evaluate", skip: int = 0
) -> Callable[[ReplayDevice, str], None]:
    """A ``before`` hook that acts at the n-th operation of a kind alone."""
    left = [skip]

    def before(device: ReplayDevice, found: str) -> None:
        if found == operation:
            left[0] -= 1
            if left[0] == -1:
                action(device)

    return before


def cool(device: ReplayDevice) -> None:
    device.readings = replace(device.readings, temperature_c=50)


def heat(device: ReplayDevice) -> None:
    device.readings = replace(device.readings, temperature_c=HOT)
