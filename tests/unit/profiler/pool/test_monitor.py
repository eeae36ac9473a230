"""Faults put into devices, and what the pool makes of them: everybody is answered, nothing disturbed is published."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import get_args

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool import pool as pool_module
from ptxbench.profiler.pool.readings import AlarmKind, Readings
from ptxbench.records import Disturbance, DisturbanceKind, Evidence
from tests.support.pool_devices import ReplayDevice
from tests.unit.factories import make_baseline, suite_case
from tests.unit.profiler.pool.conftest import Open
from tests.unit.profiler.pool.parts import (
    CASES,
    QUICK,
    SOON_S,
    built,
    cool,
    evaluate,
    heat,
    once,
    states,
    together,
    wait_until,
)


def test_a_hot_device_pauses_and_the_others_go_on(open_pool: Open):
    pool, (hot, other) = open_pool(2)
    together(pool, [CASES[0]] * 12)
    heat(hot)
    wait_until(lambda: states(pool)[0] == "paused")
    device = pool.health().devices[0]
    assert (device.reason, device.temperature_c) == ("93 C, expected less than 90 C", 93)
    before = hot.done()
    together(pool, [CASES[0]] * 6)
    assert hot.done() == before
    hot.readings = replace(hot.readings, temperature_c=87)
    time.sleep(0.1)
    assert states(pool)[0] == "paused", "cooler than the limit is not cool"
    cool(hot)
    wait_until(lambda: states(pool)[0] == "ready")
    assert hot.done("qualify") == 1
    assert not other.done("qualify")
    notes = pool.take_notes()
    assert [note.split(" at ")[0] for note in notes] == ["GPU 0 (GPU-0): paused", "GPU 0 (GPU-0): ready again"]
    assert "93 C, expected less than 90 C" in notes[0]
    assert pool.take_notes() == []


def test_with_one_device_work_waits_until_it_is_cool(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    heat(device)
    wait_until(lambda: states(pool) == ["paused"])
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(evaluate, pool)
        time.sleep(0.1)
        assert not future.done()
        cool(device)
        assert future.result(SOON_S) is not None
    assert device.done("qualify") == 1


def test_nothing_begins_on_a_device_whose_alarm_came_while_it_was_handed_over(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    looking, go_on = threading.Event(), threading.Event()
    heat(device)
    hot = device.readings

    def slow_look() -> Readings:
        looking.set()
        go_on.wait(SOON_S)
        return hot

    device.read = slow_look  # type: ignore[method-assign]
    assert looking.wait(SOON_S)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(evaluate, pool)
        wait_until(lambda: pool.health().devices[0].running == 1)
        go_on.set()
        wait_until(lambda: states(pool) == ["paused"])
        time.sleep(0.1)
        assert device.done() == 1
        hot = replace(hot, temperature_c=50)
        assert future.result(SOON_S) is not None
    assert [each[0] for each in device.log] == ["evaluate", "qualify", "evaluate"]


def test_what_was_disturbed_is_done_again_elsewhere(open_pool: Open):
    pool, devices = open_pool(2)
    together(pool, [CASES[0]] * 4)
    hot = max(devices, key=lambda device: device.done())
    hot.before = once(heat)
    found = together(pool, [CASES[0]] * 6)
    assert all(isinstance(evidence, Evidence) for evidence in found)
    assert sum(device.done() for device in devices) == 4 + 6 + 1
    assert any("is done again" in note and "93 C" in note for note in pool.take_notes())


def test_what_was_disturbed_twice_is_not_published(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)

    def throttle(_: ReplayDevice, operation: str) -> None:
        if operation == "evaluate":
            device.readings = replace(device.readings, thermal_ns=(device.readings.thermal_ns or 0) + 5_000_000)

    device.before = throttle
    with pytest.raises(InfrastructureError, match=r"disturbed twice.*heat held the clock down for 5\.0 ms") as caught:
        evaluate(pool)
    assert caught.value.kind == "device_disturbed"
    assert device.done() == 3
    device.before = lambda _, operation: None
    assert evaluate(pool) is not None


def test_counts_do_not_depend_on_the_clock_but_on_memory(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    device.before = once(heat, "sanitize")
    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(pool.sanitize, suite_case(), built(), "memcheck").result(SOON_S).tool == "memcheck"
    wait_until(lambda: states(pool) == ["paused"])
    cool(device)
    wait_until(lambda: states(pool) == ["ready"])

    def flip(_: ReplayDevice) -> None:
        device.readings = replace(device.readings, ecc_uncorrected=1)

    device.before = once(flip, "sanitize")
    pool.sanitize(suite_case(), built(), "memcheck")
    assert device.done("sanitize") == 3
    assert device.starts == 2
    assert any("uncorrectable memory errors went from 0 to 1" in note for note in pool.take_notes())


def test_other_processes_and_clocks_that_are_held_down_pause(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    good = device.readings
    for change, reason in (
        ({"foreign": ("process 7 (40%)",)}, "other processes compute on the device: process 7 (40%)"),
        ({"limited_by": ("power limit", "hardware slowdown")}, "the clock is held down: hardware slowdown"),
    ):
        device.readings = replace(good, **change)
        wait_until(lambda: states(pool) == ["paused"])
        assert pool.health().devices[0].reason == reason
        device.readings = replace(good, limited_by=("power limit",))
        wait_until(lambda: states(pool) == ["ready"])


def test_an_oracle_that_dies_is_restarted_and_qualifies(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    device.before = once(ReplayDevice.die)
    assert evaluate(pool) is not None
    assert device.starts == 2
    assert [each[0] for each in device.log] == ["evaluate", "evaluate", "qualify", "evaluate"]
    notes = " ".join(pool.take_notes())
    assert "restarting" in notes
    assert "the oracle of GPU-0 ended" in notes
    assert "ready again" in notes


def test_one_that_dies_with_every_attempt_is_an_error_and_the_device_lives_on(open_pool: Open):
    pool, (device,) = open_pool(1)
    device.before = lambda _, operation: device.die() if operation == "evaluate" else None
    with pytest.raises(InfrastructureError, match="the oracle of GPU-0 ended") as caught:
        evaluate(pool)
    assert caught.value.kind == "oracle_died"
    assert device.done() == 2
    device.before = lambda _, operation: None
    assert evaluate(pool) is not None


def test_a_stuck_operation_is_ended_by_force(open_pool: Open):
    pool, (device,) = open_pool(1, replace(QUICK, stuck_s=0.3))
    evaluate(pool)
    device.before = lambda _, operation: device.wait(30) if operation == "evaluate" else None
    begin = time.monotonic()
    with pytest.raises(InfrastructureError, match="evaluate did not end within 0 s") as caught:
        evaluate(pool)
    assert caught.value.kind == "oracle_timeout"
    assert time.monotonic() - begin < SOON_S
    device.before = lambda _, operation: None
    assert evaluate(pool) is not None


def test_a_device_that_force_does_not_reach_is_left_alone(open_pool: Open, monkeypatch):
    monkeypatch.setattr(pool_module, "ABANDON_S", 0.2)
    pool, devices = open_pool(2, replace(QUICK, stuck_s=0.3), takes_s=0.05)
    together(pool, [CASES[0], CASES[1]])
    wait_until(lambda: all(device.starts for device in devices))
    wait_until(lambda: states(pool) == ["ready", "ready"])
    deaf = devices[0]
    deaf.deaf = True
    found = together(pool, list(CASES[:2]) * 3)
    assert all(isinstance(evidence, Evidence) for evidence in found)
    wait_until(lambda: states(pool)[0] == "quarantined")
    assert "nor when it was ended by force" in pool.health().devices[0].reason
    deaf.deaf = False
    deaf.released.set()
    wait_until(lambda: states(pool)[0] == "ready")


def test_a_library_that_is_slower_than_before_quarantines(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    device.slower = 1.2
    device.before = once(ReplayDevice.die)
    with pytest.raises(
        InfrastructureError, match=r"torch\.matmul took 888\.0 us, expected within 10% of the 740\.0"
    ) as caught:
        evaluate(pool)
    assert caught.value.kind == "device_quarantined"
    assert device.done("qualify") == QUICK.attempts
    with pytest.raises(InfrastructureError, match="expected a GPU that can be trusted, found none"):
        evaluate(pool)
    device.slower = 1.0
    wait_until(lambda: states(pool) == ["ready"])
    assert evaluate(pool) is not None


def drifted(evidence: Evidence) -> Evidence:
    baseline = make_baseline(drift_span_ns=(900_000,) * 10)
    return evidence.model_copy(update={"run": evidence.run.model_copy(update={"baseline": baseline})})


def test_one_drift_is_done_again_and_two_in_a_row_are_the_devices(open_pool: Open):
    pool, (device,) = open_pool(1)
    evaluate(pool)
    left = [1]

    def change(evidence: Evidence) -> Evidence:
        left[0] -= 1
        return drifted(evidence) if left[0] >= 0 else evidence

    device.change = change
    assert not evaluate(pool).run.baseline.drifted
    assert device.done() == 3
    assert not device.done("qualify")
    left[0] = 2
    found = evaluate(pool)
    assert found.run.baseline.drifted, "the judge sees the flag and takes the faster denominator"
    wait_until(lambda: device.done("qualify") == 1)
    assert any("torch.matmul beside a candidate took 900.0 us" in note for note in pool.take_notes())


def test_what_an_evaluation_says_of_its_device_is_heard(open_pool: Open):
    """What voids a latency pauses or restarts; published the second time with its flag, since the judge reads it."""
    for kind in DisturbanceKind:
        pool, (device,) = open_pool(1)
        said = Disturbance(kind=kind, message="somebody", when="during")
        device.change = lambda evidence, said=said: evidence.model_copy(  # type: ignore[misc]
            update={"run": evidence.run.model_copy(update={"disturbances": (said,)})}
        )
        assert evaluate(pool).run.disturbances == (said,)
        assert device.done() == 1 + said.disturbing
        told = [note for note in pool.take_notes() if note.endswith("somebody")]
        assert bool(told) == said.disturbing
        assert kind in get_args(AlarmKind) or not said.disturbing


def test_what_drifted_is_done_again_on_another_device_if_there_is_one(open_pool: Open):
    pool, devices = open_pool(2, takes_s=0.05)
    together(pool, [CASES[0], CASES[1]])
    wait_until(lambda: states(pool) == ["ready", "ready"])
    evaluate(pool)
    latest = max(devices, key=lambda device: device.log[-1][3] if device.log else 0.0)
    latest.change = drifted
    before = [device.done() for device in devices]
    assert not evaluate(pool).run.baseline.drifted
    assert [device.done() - done for device, done in zip(devices, before, strict=True)] == [1, 1]


def test_a_device_that_does_not_start_is_tried_again_and_then_told(open_pool: Open):
    pool, (device,) = open_pool(1)

    def refuse(_: ReplayDevice, operation: str) -> None:
        if operation == "start":
            device.starts += 1
            raise InfrastructureError("oracle_timeout", "no hello")

    device.before = refuse
    for ask in (lambda: evaluate(pool), pool.health):
        with pytest.raises(InfrastructureError, match="no hello") as caught:
            ask()
        assert caught.value.kind == "oracle_timeout"
    assert device.starts >= QUICK.attempts
    device.before = lambda _, operation: None
    wait_until(lambda: device._running)
    assert evaluate(pool) is not None


def test_no_device_is_not_tried_again(open_pool: Open):
    pool, (device,) = open_pool(1)

    def refuse(_: ReplayDevice, operation: str) -> None:
        device.starts += 1
        raise InfrastructureError("no_device", "none here")

    device.before = refuse
    with pytest.raises(InfrastructureError, match="none here"):
        pool.health()
    assert device.starts == 1


def test_errors_that_are_nobodys_device_pass_through(open_pool: Open):
    pool, (device,) = open_pool(1)

    def fail(_: ReplayDevice, operation: str) -> None:
        raise InfrastructureError("reference_failed", "mend the definition")

    device.before = lambda _, operation: fail(_, operation) if operation == "evaluate" else None
    with pytest.raises(InfrastructureError, match="mend the definition"):
        evaluate(pool)
    assert device.done() == 1

    def break_down(_: ReplayDevice, operation: str) -> None:
        raise KeyError("a bug")

    device.before = break_down
    with pytest.raises(KeyError):
        evaluate(pool)
    device.before = lambda _, operation: None
    assert evaluate(pool) is not None
    assert states(pool) == ["ready"]


def test_an_error_that_nobody_foresaw_is_told_to_those_who_wait(open_pool: Open):
    pool, (device,) = open_pool(1)

    def refuse(_: ReplayDevice, operation: str) -> None:
        raise OSError("no more processes")

    device.before = refuse
    with pytest.raises(InfrastructureError, match="OSError: no more processes") as caught:
        evaluate(pool)
    assert caught.value.kind == "internal_error"
    other, (device,) = open_pool(1)
    evaluate(other)
    device.read = refuse  # type: ignore[assignment,method-assign]
    wait_until(lambda: states(other) == ["quarantined"])
    with pytest.raises(InfrastructureError, match="found none: GPU-0: TypeError") as caught:
        evaluate(other)
    assert caught.value.kind == "device_quarantined"


def test_a_stop_does_not_wait_for_a_paused_device(open_pool: Open):
    stop = threading.Event()
    pool, (device,) = open_pool(1, stopped=stop.is_set)
    evaluate(pool)
    heat(device)
    wait_until(lambda: states(pool) == ["paused"])
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(pool.sanitize, suite_case(), built(), "memcheck")
        time.sleep(0.1)
        stop.set()
        with pytest.raises(InfrastructureError, match="the run ends"):
            future.result(SOON_S)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_happens_everybody_is_answered(open_pool: Open, seed: int):
    """Three devices that overheat, die and hang at random, under 60 evaluations from 12 threads."""
    pool, devices = open_pool(3, replace(QUICK, stuck_s=0.15), takes_s=0.003, builds_s=0.006)
    dice, lock = random.Random(seed), threading.Lock()

    def fault(device: ReplayDevice, operation: str) -> None:
        with lock:
            roll = dice.random()
        if operation == "qualify":
            cool(device)
        elif roll < 0.03:
            device.die()
        elif roll < 0.06:
            heat(device)
            threading.Timer(0.05, cool, (device,)).start()
        elif roll < 0.07:
            device.wait(30)

    for device in devices:
        device.before = fault
    found = together(pool, list(CASES) * 12, threads=12)
    kinds = {each.kind for each in found if isinstance(each, InfrastructureError)}
    assert kinds <= {"oracle_died", "oracle_timeout", "device_disturbed", "device_quarantined"}
    right = [each for each in found if isinstance(each, Evidence)]
    assert len(right) >= 50
    assert len(found) == 60
