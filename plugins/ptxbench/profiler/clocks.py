"""The SM clock right behind timed calls, and what holds it down, as NVML tells (nvidia-ml-py).

A device under full tensor load is limited by power: without its clock a share of the ceiling cannot be read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ptxbench.profiler.device import device_uuid
from ptxbench.records import POWER_LIMIT, ClockSample

HARDWARE = ("hardware slowdown", "hardware thermal slowdown", "power brake")
"""Limits by which the hardware protects itself: the clock drops by a half or more."""
THERMAL = ("thermal limit",)
"""The driver lowers the clock to keep below the highest operating temperature."""
REASONS = {0x04: POWER_LIMIT, 0x08: HARDWARE[0], 0x20: THERMAL[0], 0x40: HARDWARE[1], 0x80: HARDWARE[2]}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` that mean a limit (NVML API, "NvmlClocksEventReasons")."""


def sample() -> ClockSample | None:
    """The clock of the device that this process works on; None where NVML does not tell."""
    found = device()
    if found is None:
        return None
    nvml, handle = found
    try:
        clock = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        return ClockSample(sm_mhz=clock, limited_by=tuple(name for bit, name in REASONS.items() if reasons & bit))
    except Exception:  # a reading that no rule needs: whatever is raised means that it cannot be told
        return None


@cache
def device() -> tuple[Any, Any] | None:
    """The bindings and the handle of the device that this process works on, asked for once; None without NVML."""
    try:
        return open_device(device_uuid())
    except Exception:  # as above
        return None


def open_device(uuid: str | None) -> tuple[Any, Any] | None:
    """The bindings and a device's handle. By UUID: NVML knows nothing of CUDA_VISIBLE_DEVICES."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except Exception:  # whatever is missing: the device is measured on, and not watched
        return None
