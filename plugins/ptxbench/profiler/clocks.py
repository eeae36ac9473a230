"""The SM clock right behind timed calls, and what holds it down, as NVML tells (nvidia-ml-py).

A device under full tensor load is limited by power: without its clock a share of the ceiling cannot be read.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ptxbench.profiler.device import device_uuid
from ptxbench.records import POWER_LIMIT, ClockSample

REASONS = {
    0x04: POWER_LIMIT,
    0x08: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` that mean a limit (NVML API, "NvmlClocksEventReasons")."""


def sample() -> ClockSample | None:
    """The clock of the device that this process works on; None where NVML does not tell."""
    found = _device()
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
def _device() -> tuple[Any, Any] | None:
    """The bindings and the device's handle. By UUID: NVML knows nothing of CUDA_VISIBLE_DEVICES."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(device_uuid())
    except Exception:  # as above; asked once, so that a machine without NVML pays once
        return None
