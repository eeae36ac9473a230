"""Readings from NVML (nvidia-ml-py). What it does not tell is left out: no reading is needed for measuring.

Names of functions and constants: NVML API reference, "Device Queries" and "NvmlClocksEventReasons". Unknown until a
device shows it: whether a MIG instance tells anything (``tests/gpu/test_pool.py`` reads whole devices).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ptxbench.profiler.clocks import REASONS, open_device
from ptxbench.profiler.pool.readings import NoReader, Reader, Readings

BUSY_WINDOW_S = 2.0
"""A process that computed within this time computes."""
_OURS = b"ptxbench/profiler/"
_OUR_MODULES = b"ptxbench.profiler."
_MOST_ANCESTORS = 32

T = TypeVar("T")


def open_reader(uuid: str | None, pid: Callable[[], int | None]) -> Reader:
    """A reader of the device of this UUID, whose oracle is the process ``pid``; one that tells nothing without NVML."""
    found = open_device(uuid) if uuid is not None else None
    return NoReader() if found is None else NvmlReader(*found, pid)


class NvmlReader:
    """One device, by its NVML handle."""

    def __init__(self, nvml: object, handle: object, pid: Callable[[], int | None]) -> None:
        self._nvml: Any = nvml
        self._handle = handle
        self._pid = pid

    def read(self) -> Readings:
        """All that NVML tells; each reading by itself may be missing."""
        nvml, handle = self._nvml, self._handle
        reasons = _told(lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))) or 0
        temperature = _told(lambda: int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)))
        return Readings(
            at_s=time.monotonic(),
            temperature_c=temperature,
            slowdown_c=self._slowdown_c(temperature),
            limited_by=tuple(name for bit, name in REASONS.items() if reasons & bit),
            thermal_ns=_told(
                lambda: int(nvml.nvmlDeviceGetViolationStatus(handle, nvml.NVML_PERF_POLICY_THERMAL).violationTime)
            ),
            ecc_uncorrected=_told(
                lambda: int(
                    nvml.nvmlDeviceGetTotalEccErrors(
                        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
                    )
                )
            ),
            foreign=_told(self._foreign) or (),
        )

    def _slowdown_c(self, temperature: int | None) -> int | None:
        """Where the device slows down: as a threshold, or, from Ada on, as the margin that is left to it."""
        nvml, handle = self._nvml, self._handle
        threshold = _told(
            lambda: int(nvml.nvmlDeviceGetTemperatureThreshold(handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN))
        )
        if threshold is not None or temperature is None:
            return threshold
        margin = _told(lambda: int(nvml.nvmlDeviceGetMarginTemperature(handle)))
        return None if margin is None else temperature + margin

    def _foreign(self) -> tuple[str, ...]:
        """Processes that are not ours and computed lately.

        Others of PTXBench take turns with us (``gpu_lock``). Where our own oracle is not among those that NVML lists,
        it counts processes of another namespace (a container), and nobody can tell who is who.
        """
        listed = {int(each.pid) for each in self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle)}
        if self._pid() not in listed:
            return ()
        others = {pid for pid in listed if not is_ours(pid)}
        if not others:
            return ()
        since = int((time.time() - BUSY_WINDOW_S) * 1e6)
        samples = self._nvml.nvmlDeviceGetProcessUtilization(self._handle, since)
        # NVML returns what its buffer holds, older samples too.
        busy = {int(each.pid): int(each.smUtil) for each in samples if each.smUtil > 0 and each.timeStamp >= since}
        return tuple(f"process {pid} ({busy[pid]}%)" for pid in sorted(others & busy.keys()))


def is_ours(pid: int) -> bool:
    """Whether a process is an oracle, a worker of one, or a child of such, of this or another session.

    One that is gone is taken to have been: a sandbox that was just ended stays in NVML's list for a moment.
    """
    for _ in range(_MOST_ANCESTORS):
        folder = Path("/proc", str(pid))
        try:
            command = (folder / "cmdline").read_bytes()
            parent = int((folder / "stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return True
        if _OURS in command or _OUR_MODULES in command:
            return True
        if parent <= 1:
            return False
        pid = parent
    return False


def _told(read: Callable[[], T]) -> T | None:
    """A reading, or None for whatever the bindings raise: errors of NVML, or a function that an old driver lacks."""
    with suppress(Exception):
        return read()
    return None
