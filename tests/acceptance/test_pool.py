"""Real pytest over a pool of two devices that replay stored evidence: what the user sees of their faults."""

from __future__ import annotations

import json

import pytest

PROFILER = """
import threading
from dataclasses import replace
import pytest
from ptxbench.agent import Profilers
from ptxbench.profiler.pool.pool import DevicePool
from ptxbench.profiler.pool.watch import Limits
from tests.support.pool_devices import ReplayDevice

def heat(device, operation):
    if operation == "evaluate" and not device.closed and device.readings.temperature_c < 90:
        device.readings = replace(device.readings, temperature_c=93)
        device.before = lambda device, operation: None
        threading.Timer(0.3, cool, (device,)).start()

def cool(device):
    device.readings = replace(device.readings, temperature_c=50)

def slow(device, operation):
    if operation == "evaluate":
        device.slower = 1.5
        if device.done():
            device.die()

@pytest.fixture(scope="session")
def profiler(bench):
    evidence = bench.root / "generated" / "reference"
    devices = {{name: ReplayDevice(name, evidence, takes_s=0.05) for name in {names!r}}}
    next(iter(devices.values())).before = {fault}
    limits = Limits(poll_s=0.05, calm_s=0.1, retry_s=0.05)
    pool = DevicePool(list(devices), devices.__getitem__, lambda device: device, limits=limits)
    profilers = Profilers(bench.options.profiler, lambda name: pool)
    yield profilers
    profilers.close()
"""


def run(checkout: pytest.Pytester, fault: str, *names: str) -> pytest.RunResult:
    tests = checkout.path / "ptx_tests"
    source = (tests / "test_turns.py").read_text()
    tests.unlink()
    tests.mkdir()
    (tests / "test_turns.py").write_text(source)
    (tests / "conftest.py").write_text(PROFILER.format(fault=fault, names=names))
    return checkout.runpytest_subprocess(
        "-p", "no:cacheprovider", "-m", "h100", "--profiler", "local", "--run", "pool", "--ptx-json", "pool.json"
    )


def test_a_disturbed_turn_is_measured_again_and_the_report_says_so(judged):
    result = run(judged, "heat", "GPU-a", "GPU-b")
    result.assert_outcomes(passed=15, deselected=15)
    result.stdout.fnmatch_lines_random(
        [
            "GPU 0 (GPU-a): paused at ??:??:?? UTC: 93 C, expected less than 90 C",
            "*: evaluate is done again: GPU-a: 93 C, expected less than 90 C",
        ]
    )
    turns = json.loads((judged.path / "pool.json").read_text())["turns"]
    assert {(turn["verdict"]["outcome"], turn["verdict"]["speedup"]) for turn in turns} == {("correct", 0.925)}


def test_turns_that_no_device_can_be_trusted_with_are_left_out_with_the_reason(judged):
    """The only device turns slow behind its first evaluation, whose sanitizer and counts still wait."""
    result = run(judged, "slow", "GPU-a")
    result.assert_outcomes(errors=15, deselected=15)
    result.stdout.fnmatch_lines(
        ["*infrastructure fault device_quarantined: expected a GPU that can be trusted, found none*"]
    )
    result.stdout.fnmatch_lines(
        ["GPU 0 (GPU-a): quarantined at ??:??:?? UTC: the qualifying run failed: *expected within 10%*"]
    )
    faults = [json.loads(path.read_text()) for path in (judged.path / "generated" / "pool" / "faults").iterdir()]
    assert {fault["fault"]["kind"] for fault in faults} == {"device_quarantined"}
    assert len(faults) == 5
