"""The pool with real threads, over devices that replay stored evidence in the time that a device would take."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.replay import ReplayProfiler
from ptxbench.profiler.ticket import ticket
from tests.unit.factories import DEVICE, suite_case
from tests.unit.profiler.pool.conftest import Open
from tests.unit.profiler.pool.parts import CASES, built, evaluate, states, together, wait_until


def test_answers_are_the_devices(open_pool: Open, evidence):
    pool, (device,) = open_pool(1)
    replay = ReplayProfiler([evidence])
    case = suite_case()
    expected = replay.evaluate(case, built())
    assert expected is not None
    assert evaluate(pool) == expected
    assert pool.instructions(case, built()) == expected.instructions
    assert pool.sanitize(case, built(), "memcheck") == expected.safety[0]
    assert pool.sanitize(case, built(), "racecheck").status.value == "unavailable"
    assert [each[0] for each in device.log] == ["evaluate", "instructions", "sanitize", "sanitize"]


def test_nothing_is_started_before_it_is_needed_nor_more_than_that(open_pool: Open):
    pool, devices = open_pool(3, takes_s=0.1)
    assert [device.starts for device in devices] == [0, 0, 0]
    evaluate(pool)
    evaluate(pool)
    assert [device.starts for device in devices] == [1, 0, 0]
    together(pool, [CASES[0]] * 2)
    wait_until(lambda: devices[1].starts == 1)
    assert devices[2].starts == 0


def test_every_device_works_and_each_at_one_thing_at_a_time(open_pool: Open):
    pool, devices = open_pool(2, takes_s=0.005, builds_s=0.01)
    found = together(pool, list(CASES) * 8)
    assert [evidence.definition for evidence in found] == [suite_case(name).definition.name for name in CASES] * 8
    done = [device.done() for device in devices]
    assert sum(done) == 40
    assert min(done) >= 10


def test_evaluations_go_where_their_state_is(open_pool: Open):
    """Building takes forty times an evaluation: each is somewhere, and the next ones go there."""
    pool, devices = open_pool(2, takes_s=0.01, builds_s=0.4)
    together(pool, list(CASES[:2]))
    wait_until(lambda: states(pool) == ["ready", "ready"])
    together(pool, list(CASES))
    before = sum(device.builds for device in devices)
    assert 5 <= before < 10, "ten would be every workload on every device"
    together(pool, list(CASES) * 8)
    assert sum(device.builds for device in devices) <= before + 1
    resident = [set(device.resident) for device in pool.health().devices]
    assert set.union(*resident) == {suite_case(name).name for name in CASES}
    assert all(device.done() for device in devices)


def test_health_says_what_each_device_does(open_pool: Open):
    pool, _ = open_pool(1, takes_s=0.5)
    health = pool.health()
    assert (health.kind, health.device) == ("local", DEVICE)
    assert health.message == "NVIDIA H200, driver 580.159"
    with ThreadPoolExecutor(3) as executor:
        for _ in range(3):
            executor.submit(evaluate, pool)
        wait_until(lambda: (pool.health().devices[0].running, pool.health().devices[0].queued) == (1, 2))
        (found,) = pool.health().devices
    assert (found.name, found.index, found.state, found.queued) == ("GPU-0", 0, "busy", 2)
    assert (found.temperature_c, found.reason) == (45, "")
    assert found.resident == (suite_case().name,)
    assert found.since.endswith("+00:00")
    assert states(pool) == ["ready"]


def test_interactive_before_bulk(open_pool: Open):
    pool, (device,) = open_pool(1, takes_s=0.02, builds_s=0.0)
    order: list[str] = []

    def ask(priority) -> None:
        with ticket(client=priority, priority=priority):
            evaluate(pool)
        order.append(priority)

    threads = [threading.Thread(target=ask, args=(priority,)) for priority in ("bulk",) * 4 + ("interactive",) * 3]
    device.before = lambda _, operation: time.sleep(0.2) if operation == "start" else None
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert order == ["interactive"] * 3 + ["bulk"] * 4


def test_a_stop_gives_up_who_waits(open_pool: Open):
    stop = threading.Event()
    pool, (device,) = open_pool(1, takes_s=0.4, builds_s=0.0, stopped=stop.is_set)
    with ThreadPoolExecutor(5) as executor:
        futures = [executor.submit(evaluate, pool) for _ in range(3)]
        wait_until(lambda: pool.health().devices[0].running == 1)
        futures.append(executor.submit(pool.sanitize, suite_case(), built(), "racecheck"))
        tool = executor.submit(pool.sanitize, suite_case(), built(), "memcheck")
        time.sleep(0.05)
        stop.set()
    kinds = [getattr(future.exception(), "kind", "measured") for future in futures]
    assert Counter(kinds) == {"measured": 1, "stopped": 3}
    assert tool.result().tool == "memcheck"
    assert device.done() == 1


def test_closing_finishes_what_is_measured_and_can_be_repeated(open_pool: Open):
    pool, (device, other) = open_pool(2, takes_s=0.2)
    with ThreadPoolExecutor(1) as executor:
        future = executor.submit(evaluate, pool)
        wait_until(lambda: device.starts == 1 and pool.health().devices[0].running == 1)
        pool.close()
        pool.close()
    assert future.result() is not None
    assert device.closed
    assert not other.starts
    with pytest.raises(InfrastructureError, match="the profiler was closed") as caught:
        evaluate(pool)
    assert caught.value.kind == "stopped"
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ptxbench-pool")]


def test_closing_what_was_never_used(open_pool: Open):
    pool, (device,) = open_pool(1)
    pool.close()
    with pytest.raises(InfrastructureError, match="the profiler was closed"):
        pool.health()
    assert not device.starts


def test_no_evidence_is_no_fault(open_pool: Open):
    pool, _ = open_pool(1)
    assert pool.evaluate(
        suite_case("mha_with_lse_d128").model_copy(update={"baseline": suite_case().baseline}), built()
    )
    nobody = built()._replace(build=built().build.model_copy(update={"candidate_sha256": "f" * 64}))
    assert pool.evaluate(suite_case(), nobody) is None


def test_a_workload_that_fits_no_device_says_how_much_it_needs(open_pool: Open):
    pool, devices = open_pool(2)
    for device in devices:
        device.identity = DEVICE.model_copy(update={"memory_bytes": 8 << 30})
    with pytest.raises(
        InfrastructureError, match=r"needs 9\.\d GiB of device memory, the largest .* has 8\.0"
    ) as caught:
        evaluate(pool)
    assert caught.value.kind == "out_of_device_memory"


def test_devices_of_another_kind_are_left_out(open_pool: Open):
    pool, (first, other) = open_pool(2, takes_s=0.05)
    other.identity = DEVICE.model_copy(update={"name": "NVIDIA H100"})
    first.before = lambda _, operation: time.sleep(0.2) if operation == "start" else None  # the other is up before it
    assert all(evidence.device == DEVICE for evidence in together(pool, list(CASES)))
    wait_until(lambda: states(pool)[1] == "quarantined")
    assert "expected NVIDIA H200 as the first device is, found NVIDIA H100" in pool.health().devices[1].reason
    assert first.done() == 5
    assert not other.done()
    wait_until(lambda: other.closed)
