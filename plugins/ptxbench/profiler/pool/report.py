"""What people and machines are told of the pool's devices."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.pool.scheduler import Scheduler
from ptxbench.profiler.pool.slot import Job, Slot
from ptxbench.profiler.pool.watch import Event
from ptxbench.profiler.protocol import DeviceHealth
from ptxbench.records import DeviceIdentity


def device_healths(slots: Sequence[Slot], scheduler: Scheduler, names: Mapping[str, str]) -> tuple[DeviceHealth, ...]:
    """The devices as ``/health`` shows them. ``names`` are those of the cases, by the keys of their states."""
    queued = scheduler.queued(time.monotonic())
    return tuple(
        DeviceHealth(
            name=slot.name,
            index=slot.index,
            state="busy" if slot.watch.ready and slot.job is not None else slot.watch.state,
            reason=slot.watch.reason,
            temperature_c=slot.readings.temperature_c,
            running=int(slot.job is not None),
            queued=queued.get(slot.index, 0),
            resident=tuple(names.get(state, state) for state in scheduler.resident(slot.index)),
            since=_wall(slot.watch.since),
        )
        for slot in slots
    )


def notes_of(slot: Slot) -> list[str]:
    """What happened to a device since the last time."""
    events, slot.watch.events = slot.watch.events, []
    return [f"GPU {slot.index} ({slot.name}): {_told(event)}" for event in events if event.state != "qualifying"]


def _told(event: Event) -> str:
    when = _wall(event.at)[11:19]
    return f"{event.state} at {when} UTC: {event.reason}" if event.reason else f"ready again at {when} UTC"


def gone(slots: Sequence[Slot]) -> InfrastructureError:
    """No device is left. Where none ever started, that is the fault; where some did, that they are quarantined."""
    errors = [slot.error for slot in slots]
    if (first := errors[0]) is not None and all(slot.identity is None for slot in slots):
        return InfrastructureError(first.kind, str(first))
    reasons = "; ".join(f"{slot.name}: {slot.watch.reason}" for slot in slots)
    return InfrastructureError(
        "device_quarantined", f"expected a GPU that can be trusted, found none: {reasons}; see docs/pool.md"
    )


def too_large(job: Job, slots: Sequence[Slot]) -> InfrastructureError:
    """A workload that fits no device."""
    largest = max((slot.identity.memory_bytes for slot in slots if slot.identity), default=0)
    return InfrastructureError(
        "out_of_device_memory",
        f"{job.case.name}: its workload state with a candidate needs {job.task.need.alone / 2**30:.1f} GiB of device "
        f"memory, the largest device here has {largest / 2**30:.1f} GiB; choose a smaller workload",
    )


def other_kind(first: DeviceIdentity, found: DeviceIdentity) -> InfrastructureError | None:
    """What keeps two devices from being compared: a report names one, and a speedup holds on one."""
    if (found.name, found.compute_capability) == (first.name, first.compute_capability):
        return None
    return InfrastructureError(
        "device_mismatch",
        f"expected {first.name} as the first device is, found {found.name}; name devices of one kind in "
        "CUDA_VISIBLE_DEVICES",
    )


def typed(error: Exception) -> InfrastructureError:
    """An error that nobody foresaw, as one that callers expect."""
    if isinstance(error, InfrastructureError):
        return error
    return InfrastructureError("internal_error", f"{type(error).__name__}: {error}")


def _wall(monotonic_s: float) -> str:
    at = time.time() - (time.monotonic() - monotonic_s)
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
