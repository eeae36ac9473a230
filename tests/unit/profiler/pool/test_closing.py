"""A pool that is closed while something goes wrong: whoever waits is answered, and closing ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool import pool as pool_module
from tests.unit.profiler.pool.conftest import Open
from tests.unit.profiler.pool.parts import CASES, QUICK, SOON_S, evaluate, heat, states, together, wait_until


def test_what_is_disturbed_while_the_pool_closes_is_not_given_to_a_device_that_has_ended(open_pool: Open):
    pool, devices = open_pool(2, takes_s=0.05)
    together(pool, list(CASES[:2]))
    wait_until(lambda: states(pool) == ["ready", "ready"])
    begun, go_on = threading.Event(), threading.Event()

    def disturb(device, operation) -> None:
        begun.set()
        assert go_on.wait(SOON_S)
        heat(device)

    for device in devices:
        device.before = disturb
    with ThreadPoolExecutor(2) as executor:
        asked = executor.submit(evaluate, pool)
        assert begun.wait(SOON_S)
        closing = executor.submit(pool.close)
        wait_until(lambda: any(device.closed for device in devices))
        go_on.set()
        with pytest.raises(InfrastructureError, match="the profiler was closed") as caught:
            asked.result(SOON_S)
        closing.result(SOON_S)
    assert caught.value.kind == "stopped"


def test_closing_does_not_wait_for_a_device_that_force_does_not_reach(open_pool: Open, monkeypatch):
    monkeypatch.setattr(pool_module, "ABANDON_S", 0.1)
    pool, (device,) = open_pool(1, replace(QUICK, stuck_s=0.2))
    evaluate(pool)
    device.deaf = True
    with ThreadPoolExecutor(2) as executor:
        asked = executor.submit(evaluate, pool)
        wait_until(lambda: pool.health().devices[0].running == 1)
        closing = executor.submit(pool.close)
        try:
            with pytest.raises(InfrastructureError) as caught:
                asked.result(SOON_S)
            closing.result(SOON_S)
        finally:
            device.released.set()
    assert caught.value.kind == "stopped"
