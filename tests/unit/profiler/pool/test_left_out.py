"""Devices that others stand in for, and what one has to be like to come back."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool import pool as pool_module
from ptxbench.records import Evidence
from tests.support.pool_devices import ReplayDevice
from tests.unit.factories import DEVICE, suite_case
from tests.unit.profiler.pool.conftest import Open
from tests.unit.profiler.pool.parts import CASES, QUICK, cool, evaluate, heat, states, together, wait_until
from tests.unit.profiler.pool.test_monitor import drifted


def test_another_is_started_where_the_first_cannot_be_used(open_pool: Open):
    pool, (broken, other, third) = open_pool(3)

    def no_device(_, operation: str) -> None:
        raise InfrastructureError("no_device", "this one has fallen off the bus")

    broken.before = no_device
    assert evaluate(pool) is not None
    assert (other.done(), third.starts) == (1, 0)


def test_another_is_started_where_the_first_is_too_small(open_pool: Open):
    pool, (small, large) = open_pool(2)
    small.identity = DEVICE.model_copy(update={"memory_bytes": 8 << 30})
    assert evaluate(pool) is not None
    assert (small.done(), large.done()) == (0, 1)


def test_what_the_oracle_holds_counts_and_not_what_was_foreseen(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool, CASES[0])
    device.before = lambda _, operation: device._states.clear()
    evaluate(pool, CASES[1])
    assert pool.health().devices[0].resident == (suite_case(CASES[1]).name,)


def test_the_workload_that_was_measured_last_is_what_a_device_qualifies_by(open_pool: Open):
    pool, (device,) = open_pool(1)
    for case in CASES[:2]:
        evaluate(pool, case)
    heat(device)
    wait_until(lambda: states(pool) == ["paused"])
    cool(device)
    wait_until(lambda: states(pool) == ["ready"])
    assert [case for operation, case, *_ in device.log if operation == "qualify"] == [CASES[1]]


def test_an_oracle_that_dies_whenever_it_qualifies_quarantines(open_pool: Open):
    pool, (device,) = open_pool(1, replace(QUICK, quarantine_s=60.0))
    evaluate(pool)

    def die(_, operation: str) -> None:
        if operation == "qualify":
            device.die()

    device.before = die
    heat(device)
    wait_until(lambda: states(pool) == ["paused"])
    cool(device)
    with pytest.raises(InfrastructureError, match="the qualifying run failed: the oracle of GPU-0 ended") as caught:
        evaluate(pool)
    assert caught.value.kind == "device_quarantined"
    assert device.starts <= QUICK.attempts + 1


def test_a_device_that_came_back_from_a_hang_is_waited_for_when_the_pool_closes(open_pool: Open, monkeypatch):
    monkeypatch.setattr(pool_module, "ABANDON_S", 0.1)
    pool, (device,) = open_pool(1, replace(QUICK, stuck_s=0.2))
    evaluate(pool)
    device.deaf = True
    with pytest.raises(InfrastructureError):
        evaluate(pool)
    device.deaf = False
    device.released.set()
    wait_until(lambda: states(pool) == ["ready"])
    pool.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ptxbench-pool")]


def failing(device: ReplayDevice) -> None:
    """Every evaluation ends at once, so that the device is idle and gets the next one."""

    def before(_: ReplayDevice, operation: str) -> None:
        if operation in ("evaluate", "qualify"):
            raise InfrastructureError("sandbox_failed", "CUDA does not start")

    device.before = before


def test_a_device_that_fails_fast_does_not_swallow_the_queue(open_pool: Open):
    pool, (sick, well) = open_pool(2, replace(QUICK, quarantine_s=60.0))
    together(pool, [CASES[0]] * 6)
    wait_until(lambda: states(pool) == ["ready", "ready"])
    failing(sick)
    found = together(pool, [CASES[0]] * 12, threads=3)
    assert [each for each in found if isinstance(each, InfrastructureError)] == []
    together(pool, [CASES[0]] * 30, threads=3)
    wait_until(lambda: states(pool) == ["quarantined", "ready"])
    assert "sandbox_failed: CUDA does not start" in " ".join(pool.take_notes())
    assert well.done() >= 42


def test_the_only_device_is_not_asked_twice_and_is_started_anew_when_it_fails_and_fails(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    failing(device)
    for asked in (1, 2, 3):
        with pytest.raises(InfrastructureError, match="CUDA does not start"):
            evaluate(pool)
        assert device.done() == 1 + asked
    wait_until(lambda: device.starts == 2)
    device.before = lambda _, operation: None
    assert evaluate(pool) is not None


def test_failures_with_a_success_between_them_are_not_in_a_row(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    for _ in range(2):
        failing(device)
        for _ in range(2):
            with pytest.raises(InfrastructureError, match="CUDA does not start"):
                evaluate(pool)
        device.before = lambda _, operation: None
        assert evaluate(pool) is not None
    assert (device.starts, pool.take_notes()) == (1, [])


def test_drifts_before_a_device_qualified_do_not_count_behind_it(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    left = [2]

    def change(evidence: Evidence) -> Evidence:
        left[0] -= 1
        return drifted(evidence) if left[0] >= 0 else evidence

    device.change = change
    assert evaluate(pool).run.baseline.drifted
    wait_until(lambda: (device.done("qualify"), states(pool)) == (1, ["ready"]))
    left[0] = 1
    assert not evaluate(pool).run.baseline.drifted
    assert device.done("qualify") == 1


def test_a_device_that_came_back_faster_is_another_one_too(open_pool: Open):
    pool, (device,) = open_pool(1, replace(QUICK, quarantine_s=60.0))
    evaluate(pool)
    device.slower = 0.8
    heat(device)
    wait_until(lambda: states(pool) == ["paused"])
    cool(device)
    with pytest.raises(InfrastructureError, match="expected within 10%"):
        evaluate(pool)
