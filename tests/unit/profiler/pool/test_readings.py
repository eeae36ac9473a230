"""What in the readings is an alarm, and how NVML's answers become readings: its bindings are a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.profiler.pool import nvml
from ptxbench.profiler.pool.nvml import NvmlReader, is_ours, open_reader
from ptxbench.profiler.pool.readings import NoReader, Readings, alarm_of

GOOD = Readings(temperature_c=60, slowdown_c=90, limited_by=("power limit",), thermal_ns=7, ecc_uncorrected=2)


def changed(**values: Any) -> Readings:
    return Readings(**{**vars(GOOD), **values})


def test_full_load_is_no_alarm():
    assert alarm_of(GOOD) is None
    assert alarm_of(GOOD, GOOD) is None
    assert alarm_of(Readings()) is None
    assert alarm_of(GOOD, Readings()) is None, "what was not known before has not grown"
    assert alarm_of(Readings(temperature_c=99)) is None, "nobody knows its limit"


@pytest.mark.parametrize(
    ("now", "kind", "message"),
    [
        ({"temperature_c": 90}, "temperature", "90 C, expected less than 90 C"),
        ({"limited_by": ("power limit", "power brake")}, "throttled", "the clock is held down: power brake"),
        ({"thermal_ns": 2_000_007}, "throttled", "heat held the clock down for 2.0 ms"),
        ({"ecc_uncorrected": 3}, "ecc", "uncorrectable memory errors went from 2 to 3"),
        (
            {"foreign": ("process 9 (80%)",)},
            "foreign_process",
            "other processes compute on the device: process 9 (80%)",
        ),
    ],
)
def test_alarms(now: dict[str, Any], kind: str, message: str):
    assert alarm_of(changed(**now), GOOD) == (kind, message)


def test_counters_that_stand_still_are_no_alarm_however_high():
    assert alarm_of(changed(ecc_uncorrected=3), changed(ecc_uncorrected=3)) is None


def test_heat_that_hardly_held_the_clock_down_is_no_alarm():
    before = changed(at_s=100.0)
    assert alarm_of(changed(at_s=101.0, thermal_ns=7 + 9_000_000), before) is None
    assert alarm_of(changed(at_s=101.0, thermal_ns=7 + 11_000_000), before) == (
        "throttled",
        "heat held the clock down for 11.0 ms",
    )


def test_one_that_was_hot_must_be_cooler():
    assert alarm_of(changed(temperature_c=86), hot=True) is not None
    assert alarm_of(changed(temperature_c=84), hot=True) is None


class RefusedError(Exception):
    """What the bindings raise."""


def bindings(**changes: Any) -> Any:
    def thermal(_: object, policy: int) -> object:
        return SimpleNamespace(violationTime={1: 5_000}[policy])

    values: dict[str, Any] = {
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN": 1,
        "NVML_PERF_POLICY_THERMAL": 1,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: f"handle of {uuid}",
        "nvmlDeviceGetCurrentClocksEventReasons": lambda _: 0x4 | 0x40,
        "nvmlDeviceGetTemperature": lambda _, sensor: {0: 61}[sensor],
        "nvmlDeviceGetTemperatureThreshold": lambda _, threshold: {1: 92}[threshold],
        "nvmlDeviceGetViolationStatus": thermal,
        "nvmlDeviceGetTotalEccErrors": lambda _, error, counter: {(1, 0): 3}[error, counter],
        "nvmlDeviceGetComputeRunningProcesses": lambda _: [],
        "nvmlDeviceGetProcessUtilization": lambda _, since: [],
    }
    return SimpleNamespace(**{**values, **changes})


def test_readings_are_what_nvml_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", bindings())
    reader = open_reader("GPU-1", lambda: None)
    assert isinstance(reader, NvmlReader)
    assert reader._handle == "handle of GPU-1"
    found = reader.read()
    assert abs(found.at_s - time.monotonic()) < 60
    assert found == Readings(
        at_s=found.at_s,
        temperature_c=61,
        slowdown_c=92,
        limited_by=("power limit", "hardware thermal slowdown"),
        thermal_ns=5_000,
        ecc_uncorrected=3,
    )


def test_where_there_is_no_threshold_the_margin_says_where_it_slows_down():
    margin: Any = {"nvmlDeviceGetTemperatureThreshold": refuse, "nvmlDeviceGetMarginTemperature": lambda _: 24}
    assert NvmlReader(bindings(**margin), None, lambda: None).read().slowdown_c == 61 + 24
    margin["nvmlDeviceGetTemperature"] = refuse
    assert NvmlReader(bindings(**margin), None, lambda: None).read().slowdown_c is None


def refuse(*_: object) -> Any:
    raise RefusedError


def test_what_nvml_refuses_is_left_out(monkeypatch: pytest.MonkeyPatch):
    names = [name for name in vars(bindings()) if name.startswith("nvmlDeviceGet") and "Handle" not in name]
    found = NvmlReader(bindings(**dict.fromkeys(names, refuse)), None, lambda: 1).read()
    assert found == Readings(at_s=found.at_s)
    for gone in ({"nvmlInit": refuse}, {"nvmlDeviceGetHandleByUUID": refuse}):
        monkeypatch.setitem(sys.modules, "pynvml", bindings(**gone))
        assert isinstance(open_reader("GPU-1", lambda: None), NoReader)
    assert isinstance(open_reader(None, lambda: None), NoReader)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_reader("GPU-1", lambda: None).read() == Readings()


def listing(*pids: int, busy: dict[int, int] | None = None) -> Any:
    """``busy`` is now; a minute ago everybody was."""
    now = int(time.time() * 1e6)
    samples = [SimpleNamespace(pid=pid, smUtil=99, timeStamp=now - 60_000_000) for pid in pids]
    samples += [SimpleNamespace(pid=pid, smUtil=share, timeStamp=now) for pid, share in (busy or {}).items()]
    return bindings(
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=pid) for pid in pids],
        nvmlDeviceGetProcessUtilization=lambda _, since: samples,
    )


def test_a_process_that_computes_and_is_not_ours_is_foreign():
    ours, other = os.getpid(), 1
    assert not is_ours(other)
    read = NvmlReader(listing(ours, other, busy={ours: 90, other: 40}), None, lambda: ours).read
    assert f"process {other} (40%)" in read().foreign
    assert NvmlReader(listing(ours, other, busy={other: 0}), None, lambda: ours).read().foreign == (), "it only waits"
    assert NvmlReader(listing(other, busy={other: 40}), None, lambda: ours).read().foreign == (), (
        "our own is not among them: these are numbers of another namespace"
    )


def test_oracles_of_others_and_what_they_started_are_ours():
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    # Not the oracle itself: what counts is the command line, here of a program with that name as its argument.
    with subprocess.Popen(
        [sys.executable, "-c", child, "-m", "ptxbench.profiler.oracle"], stdin=subprocess.PIPE
    ) as process:
        try:
            deadline = time.monotonic() + 20
            while not (found := children(process.pid)) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert is_ours(process.pid)
            assert is_ours(found[0])
        finally:
            assert process.stdin is not None
            process.stdin.close()
    assert is_ours(process.pid), "it is gone, as a sandbox that was just ended"
    assert nvml._told(refuse) is None


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]
