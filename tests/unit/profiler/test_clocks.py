"""The clock that NVML tells, with a stand-in for its bindings: no device is needed to read bits."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from ptxbench.profiler import clocks
from ptxbench.records import ClockSample


class RefusedError(Exception):
    """What the bindings raise."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    clocks.device.cache_clear()
    yield
    clocks.device.cache_clear()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    asked: list[str] = []
    bindings: Any = SimpleNamespace(
        NVML_CLOCK_SM=1,
        asked=asked,
        reasons=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: asked.append(uuid),
        nvmlDeviceGetClockInfo=lambda _, clock: {1: 1_410}[clock],
        nvmlDeviceGetCurrentClocksEventReasons=lambda _: bindings.reasons,
    )
    monkeypatch.setitem(sys.modules, "pynvml", bindings)
    device = SimpleNamespace(uuid="0a1b2c3d-0000-0000-0000-000000000000")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    return bindings


def test_the_device_is_the_one_of_this_process(nvml: Any) -> None:
    assert clocks.sample() == clocks.sample() == ClockSample(sm_mhz=1_410)
    assert nvml.asked == ["GPU-0a1b2c3d-0000-0000-0000-000000000000"]


@pytest.mark.parametrize(
    ("reasons", "names"),
    [(0x4, ("power limit",)), (0x24, ("power limit", "thermal limit")), (0x1, ()), (0x2, ()), (0x8000, ())],
)
def test_only_limits_are_named(nvml: Any, reasons: int, names: tuple[str, ...]) -> None:
    nvml.reasons = reasons
    assert clocks.sample() == ClockSample(sm_mhz=1_410, limited_by=names)


def test_what_nvml_refuses_is_not_known(nvml: Any) -> None:
    def refuse(_: Any) -> int:
        raise RefusedError

    nvml.nvmlDeviceGetCurrentClocksEventReasons = refuse
    assert clocks.sample() is None


def test_without_the_bindings_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert clocks.sample() is None


def test_no_clock_is_not_known(nvml: Any) -> None:
    nvml.nvmlDeviceGetClockInfo = lambda *_: 0
    assert clocks.sample() is None
