"""What NVML tells of a device, with a stand-in for its bindings; processes and their parents are real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.profiler import clocks, disturbances
from ptxbench.records import POWER_LIMIT, ClockSample, DisturbanceKind, Trial
from tests.unit.factories import make_trial

LATER_US = 10**12


class NotSupportedError(Exception):
    """What the bindings raise."""


def refuse(*_: Any) -> Any:
    raise NotSupportedError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    clocks.device.cache_clear()
    bindings: Any = SimpleNamespace(
        ecc=0,
        running=[os.getpid()],
        samples=[],
        asked_since=[],
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetTotalEccErrors=lambda _, kind, counter: {(1, 0): bindings.ecc}[kind, counter],
        nvmlDeviceGetComputeRunningProcesses=lambda _: [SimpleNamespace(pid=pid) for pid in bindings.running],
        nvmlDeviceGetProcessUtilization=lambda _, since: bindings.asked_since.append(since) or bindings.samples,
    )
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="0a1b"))
    yield bindings
    clocks.device.cache_clear()


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process that this one did not start: its parent has ended."""
    # Its own output: the pipe to this process would stay open as long as it lives.
    program = "from subprocess import *; print(Popen(['sleep', '30'], start_new_session=True, stdout=DEVNULL).pid)"
    output = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=20).stdout
    pid = int(output)
    yield pid
    os.kill(pid, 9)


def sample(pid: int, share: int = 40, *, later_us: int = LATER_US) -> Any:
    return SimpleNamespace(pid=pid, smUtil=share, timeStamp=time.time_ns() // 1000 + later_us)


def kinds(trials: tuple[Trial, ...] = (), before: disturbances.Reading | None = None) -> list[DisturbanceKind]:
    return [found.kind for found in disturbances.since(before, trials)]


def test_a_quiet_device_has_none(nvml: Any) -> None:
    before = disturbances.read()
    assert before is not None
    assert kinds(before=before) == []
    assert nvml.asked_since == [before.at_us]


def test_another_process_that_computes_is_one(nvml: Any, stranger: int) -> None:
    nvml.running.append(stranger)
    before = disturbances.read()
    nvml.samples = [sample(stranger, 12), sample(stranger, 61), sample(os.getpid(), 30)]
    (found,) = disturbances.since(before, ())
    assert (found.kind, found.disturbing) == (DisturbanceKind.FOREIGN_PROCESS, True)
    assert found.message == f"process {stranger} computed on the device: up to 61% of the time"


def test_one_that_waits_or_computed_before_is_none(nvml: Any, stranger: int) -> None:
    """An oracle that waits for the device has a context and does nothing."""
    nvml.running.append(stranger)
    before = disturbances.read()
    nvml.samples = [sample(stranger, 0), sample(stranger, 90, later_us=-LATER_US)]
    assert kinds(before=before) == []


def test_one_that_ends_meanwhile_is_one(nvml: Any, stranger: int) -> None:
    nvml.running.append(stranger)
    before = disturbances.read()
    nvml.running.remove(stranger)
    nvml.samples = [sample(stranger)]
    assert kinds(before=before) == [DisturbanceKind.FOREIGN_PROCESS]


def test_what_this_process_started_is_no_other(nvml: Any) -> None:
    nested = "import subprocess; subprocess.run(['sleep', '30'])"
    with subprocess.Popen([sys.executable, "-c", nested], start_new_session=True) as child:
        try:
            nvml.running.append(child.pid)
            before = disturbances.read()
            nvml.samples = [sample(child.pid)]
            assert kinds(before=before) == []
        finally:
            os.killpg(child.pid, 9)
    assert disturbances._ours(child.pid)  # it has ended, and was


def test_numbers_of_another_name_space_say_nothing(nvml: Any, stranger: int) -> None:
    """This process has a context: where NVML's list lacks it, its numbers are not ours."""
    nvml.running = [stranger]
    before = disturbances.read()
    nvml.samples = [sample(stranger)]
    assert kinds(before=before) == []


def test_new_uncorrectable_errors_are_one(nvml: Any) -> None:
    nvml.ecc = 3
    before = disturbances.read()
    assert kinds(before=before) == []
    nvml.ecc = 5
    (found,) = disturbances.since(before, ())
    assert (found.kind, found.disturbing) == (DisturbanceKind.ECC, True)
    assert found.message.startswith("2 new")
    nvml.ecc = 0  # counted anew, by a driver that was loaded again
    assert kinds(before=before) == []


def test_what_nvml_refuses_is_not_known(nvml: Any) -> None:
    nvml.nvmlDeviceGetTotalEccErrors = nvml.nvmlDeviceGetComputeRunningProcesses = refuse
    nvml.nvmlDeviceGetProcessUtilization = refuse
    before = disturbances.read()
    assert before is not None
    assert (before.uncorrected, before.others) == (None, frozenset())
    assert kinds(before=before) == []


def test_without_the_bindings_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks.device.cache_clear()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert disturbances.read() is None
    assert kinds((make_trial(),)) == []
    clocks.device.cache_clear()


def trials(*samples: tuple[int, tuple[str, ...]]) -> tuple[Trial, ...]:
    return tuple(make_trial(clock=ClockSample(sm_mhz=clock, limited_by=limits)) for clock, limits in samples)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([(1_980, ()), (1_900, ()), (1_980, ())], []),
        ([(1_980, ()), (1_500, ())], ["clock_changed"]),
        ([(1_980, ()), (1_500, (POWER_LIMIT,))], []),
        ([(1_500, (POWER_LIMIT,))] * 3, []),
        ([(1_980, ()), (1_980, ("hardware slowdown",))], ["throttled"]),
        ([(900, ("hardware thermal slowdown", "thermal limit"))], ["throttled", "temperature"]),
        ([(1_700, ("thermal limit",))] * 3, ["temperature"]),
        ([(990, ("power brake",))], ["throttled"]),
    ],
)
def test_clocks_tell_of_throttling(samples: list[tuple[int, tuple[str, ...]]], expected: list[str]) -> None:
    assert kinds(trials(*samples)) == expected
    found = disturbances.since(None, trials(*samples))
    assert disturbances.disturbing(found) is ("throttled" in expected)


def test_what_was_ours_stays_ours_when_its_parent_is_killed() -> None:
    program = "from subprocess import *; print(Popen(['sleep', '30'], stdout=DEVNULL).pid, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert disturbances._ours(pid)
        parent.kill()
    try:
        assert disturbances._ours(pid)
    finally:
        os.kill(pid, 9)
