"""What disturbs a measurement from outside, as NVML tells before and after an evaluation and behind each trial.

Nothing is read inside a timing. What NVML does not tell is not known and disturbs nothing: where the process numbers
that it gives are those of another name space, as in some containers, other processes can not be told from ours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.profiler import clocks
from ptxbench.records import POWER_LIMIT, Disturbance, DisturbanceKind, Trial

_UNCORRECTED, _VOLATILE = 1, 0
"""``NVML_MEMORY_ERROR_TYPE_UNCORRECTED``, ``NVML_VOLATILE_ECC``: since the driver was loaded (nvml.h)."""
CLOCK_BOUND = 0.10
"""SM clocks behind two trials differ by more than this, and not for the power limit. The bound of the baseline's drift
(``DRIFT_BOUND``), since the latency of what computes goes with the clock."""
_ANCESTORS = 64
"""More than any tree of processes is deep."""


class Reading(NamedTuple):
    """The device at one time."""

    at_us: int
    """Of the system's clock, by which NVML dates its samples."""
    uncorrected: int | None
    """Memory errors since the driver was loaded; None where the device does not count them or does not tell."""
    others: frozenset[int]
    """Processes with a context on the device that this process did not start."""


def read() -> Reading | None:
    """The device that this process works on; None where NVML does not tell."""
    found = clocks.device()
    if found is None:
        return None
    nvml, handle = found
    at_us = time.time_ns() // 1000
    return Reading(at_us, _told(nvml.nvmlDeviceGetTotalEccErrors, handle, _UNCORRECTED, _VOLATILE), _others(found))


def since(before: Reading | None, trials: Sequence[Trial]) -> tuple[Disturbance, ...]:
    """What disturbed an evaluation that began with ``before`` and has just ended."""
    return (*_clocks(trials), *(_device(before) if before is not None else ()))


def disturbing(found: Sequence[Disturbance]) -> bool:
    """Whether a latency measured meanwhile means nothing."""
    return any(each.disturbing for each in found)


def _told(ask: Any, *arguments: Any) -> Any:  # noqa: ANN401 - whatever NVML returns
    """An answer of NVML, None where it refuses one."""
    try:
        return ask(*arguments)
    except Exception:  # the bindings have a class of error for each code, and the device none of ours
        return None


def _others(found: tuple[Any, Any]) -> frozenset[int]:
    nvml, handle = found
    processes = _told(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    pids = {process.pid for process in processes or ()}
    if os.getpid() not in pids:
        return frozenset()  # we have a context: these numbers are not of our name space
    return frozenset(pid for pid in pids if not _ours(pid))


class _Identity(NamedTuple):
    """A process by its number and when it started: numbers are used again."""

    pid: int
    started: int
    """In ticks since the machine was started."""


_seen: set[_Identity] = set()
"""Processes that were ours when they were looked at. One whose parent is killed keeps its context for a while, as a
child of ``init``: nothing else tells then whose it was (H200, after a killed candidate)."""


def _stat(pid: int) -> tuple[_Identity, int] | None:
    """A process and its parent's number; None where there is no such process any more."""
    try:
        # The second field is a name in brackets, which may hold anything (proc_pid_stat(5)).
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return _Identity(pid, int(fields[19])), int(fields[1])
    except (OSError, ValueError, IndexError):
        return None


def _ours(pid: int) -> bool:
    """Whether a process is this one or descends from it, or did; one that has ended is taken to have been."""
    line: list[_Identity] = []
    for _ in range(_ANCESTORS):
        found = _stat(pid)
        if found is None or found[0] in _seen or pid == os.getpid():
            _seen.update(line)
            return True
        line.append(found[0])
        pid = found[1]
        if pid <= 1:
            return False
    return False


def _device(before: Reading) -> Iterator[Disturbance]:
    after, found = read(), clocks.device()
    if after is None or found is None:
        return
    if before.uncorrected is not None and after.uncorrected is not None and after.uncorrected > before.uncorrected:
        errors = after.uncorrected - before.uncorrected
        yield Disturbance(
            kind=DisturbanceKind.ECC, message=f"{errors} new uncorrectable memory errors (ECC)", when="during"
        )
    nvml, handle = found
    busy: dict[int, int] = {}
    for sample in _told(nvml.nvmlDeviceGetProcessUtilization, handle, before.at_us) or ():
        # NVML returns whatever its buffer holds; samples from before are of others' turns on the device.
        if sample.timeStamp > before.at_us and sample.pid in before.others | after.others and sample.smUtil > 0:
            busy[sample.pid] = max(busy.get(sample.pid, 0), sample.smUtil)
    for pid, share in sorted(busy.items()):
        message = f"process {pid} computed on the device: up to {share}% of the time"
        yield Disturbance(kind=DisturbanceKind.FOREIGN_PROCESS, message=message, when="during")


def _clocks(trials: Sequence[Trial]) -> Iterator[Disturbance]:
    samples = [trial.clock for trial in trials if trial.clock is not None]
    limits = sorted({limit for sample in samples for limit in sample.limited_by})
    for kind, names in ((DisturbanceKind.THROTTLED, clocks.HARDWARE), (DisturbanceKind.TEMPERATURE, clocks.THERMAL)):
        found = [limit for limit in limits if limit in names]
        if found:
            message = f"the device limited its clock behind a trial: {', '.join(found)}"
            yield Disturbance(kind=kind, message=message, when="during")
    if samples and POWER_LIMIT not in limits:
        lowest, highest = min(sample.sm_mhz for sample in samples), max(sample.sm_mhz for sample in samples)
        if highest > lowest * (1 + CLOCK_BOUND):
            message = f"the SM clock was {lowest} to {highest} MHz behind the trials"
            yield Disturbance(kind=DisturbanceKind.CLOCK_CHANGED, message=message, when="during")
