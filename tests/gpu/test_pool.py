"""Several GPUs of one host: twice the devices, twice the evaluations, and the same latencies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ptxbench.profiler.pool.host import open_pool
from ptxbench.profiler.state_key import state_key
from ptxbench.profiler.visible import visible_devices
from tests.gpu.conftest import ROOT
from tests.gpu.measuring import KeptDevice, feed, latency_ns, reader_of, reference, warm
from tests.support.figures import keep_figures

if TYPE_CHECKING:
    from ptxbench.cases import Case
    from ptxbench.toolchain import Toolchain

ALONE_S, TOGETHER_S = 30.0, 60.0
THREADS = 6
"""More than two devices need: each always has the next one."""
LEAST_SPEEDUP = 1.9
LATENCY_SHARE = 0.01


@pytest.fixture(scope="module")
def devices() -> Iterator[list[KeptDevice]]:
    kept = [KeptDevice(name) for name in visible_devices()[:2]]
    yield kept
    for device in kept:
        device.end()


def test_a_device_tells_of_itself_and_qualifies(devices: list[KeptDevice], gemm: Case, toolchain: Toolchain) -> None:
    device = devices[0]
    evidence = device.evaluate(gemm, reference(gemm, toolchain))
    assert evidence is not None
    assert state_key(gemm) in device.states
    readings = reader_of(device).read()
    assert readings.temperature_c is not None
    assert readings.slowdown_c is None or readings.temperature_c < readings.slowdown_c
    assert readings.foreign == ()
    found = device.qualify(gemm)
    stored = evidence.run.baseline
    assert stored is not None
    assert sorted(found.span_ns)[75] == pytest.approx(sorted(stored.span_ns)[75], rel=0.1)
    keep_figures("readings.json", {"device": evidence.device.model_dump(), "readings": vars(readings)})


def test_a_pool_restarts_an_oracle_that_was_killed(gemm: Case, toolchain: Toolchain) -> None:
    pool, built = open_pool(root=ROOT, names=visible_devices()[:1]), reference(gemm, toolchain)
    try:
        first = pool.evaluate(gemm, built)
        assert first is not None
        pool._slots[0].profiler.interrupt()
        second = pool.evaluate(gemm, built)
        assert second is not None
        assert latency_ns(second) == pytest.approx(latency_ns(first), rel=0.03)
        (device,) = pool.health().devices
        assert device.state == "ready"
        assert device.resident == (gemm.name,)
        assert device.temperature_c is not None
        assert any("ready again" in note for note in pool.take_notes())
    finally:
        pool.close()


@pytest.mark.skipif(len(visible_devices()) < 2, reason="needs two GPUs")
def test_two_devices_do_twice_as_much_and_read_the_same(
    devices: list[KeptDevice], cases: dict[str, Case], toolchain: Toolchain
) -> None:
    """The first device alone, both, and the first alone again: what drifts meanwhile is on both sides."""
    work = [(case, reference(case, toolchain)) for case in cases.values()]
    assert len(work) == 5
    warm(devices, work)
    first = str(devices[0].visible)
    before = feed(devices[:1], work, ALONE_S, THREADS)
    both = feed(devices, work, TOGETHER_S, THREADS)
    after = feed(devices[:1], work, ALONE_S, THREADS)
    alone = (before.per_minute + after.per_minute) / 2
    ratios = {
        name: both.latencies[first][name] / ((before.latencies[first][name] + after.latencies[first][name]) / 2)
        for name in both.latencies[first]
    }
    figures = {
        "objects": {case.name: built.build.so_sha256 for case, built in work},
        "per_minute": {"one": [before.per_minute, after.per_minute], "two": both.per_minute},
        "ratio": both.per_minute / alone,
        "latency_together_over_alone": ratios,
        "latencies_ns": {"before": before.latencies, "together": both.latencies, "after": after.latencies},
        "mean_stages_ms": {"before": before.stages_ms, "together": both.stages_ms, "after": after.stages_ms},
        "evaluations": {"before": before.counts, "together": both.counts, "after": after.counts},
    }
    keep_figures("pool_throughput.json", figures)
    assert set(ratios) == set(cases)
    expect_figures(figures)


def expect_figures(figures: dict[str, Any]) -> None:
    """What is demanded of a run's figures, here and of stored ones."""
    ratios = figures["latency_together_over_alone"]
    assert len(ratios) == 5
    assert figures["ratio"] >= LEAST_SPEEDUP
    assert {name: ratio for name, ratio in ratios.items() if abs(ratio - 1) > LATENCY_SHARE} == {}
