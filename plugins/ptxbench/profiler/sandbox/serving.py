"""The channel's loop: calls on request, each answered when the device is idle."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any

from .activities import Recorder
from .messages import CALL, MAX_MESSAGE_CHARS, OK, WARM_UP

SPIN_S = 0.02
"""Longer than staging, and than most kernels."""
SPIN_PROCESSORS = 4


def failure(error: BaseException) -> bytes:
    """An exception as a reply, with the CUDA error that the context is left with."""
    from cuda.bindings import runtime as cudart

    (code,) = cudart.cudaDeviceSynchronize()
    text = f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS]
    return json.dumps({"error": text, "code": int(code)}).encode()


def call_once(call: Callable[[], None], recorder: Recorder | None, *, kept: bool) -> None:
    """One recorded call, until the device is idle. Raises what the call raises, RuntimeError for a CUDA error."""
    from cuda.bindings import runtime as cudart

    begin = recorder.now() if recorder else 0
    call()
    (code,) = cudart.cudaDeviceSynchronize()
    if int(code) != 0:
        raise RuntimeError(f"{code.name} ({int(code)}) after the call")
    if recorder:
        recorder.record(begin, recorder.now(), kept=kept)


def serve_calls(
    channel: Connection,
    call: Callable[[], None],
    recorder: Recorder | None,
    *,
    after: Callable[[], None] = lambda: None,
    operations: Mapping[str, Callable[[], dict[str, Any]]] = MappingProxyType({}),
) -> bool:
    """Answer requests until ``quit`` (False) or, for a worker that outlives its job, ``release`` (True).

    ``after`` runs behind every recorded call, outside its span; ``operations`` answer requests by name.
    """
    ear = Ear(channel.fileno())
    while True:
        ear.wait()
        message = channel.recv_bytes()
        if message not in (CALL, WARM_UP):
            operation = json.loads(message)["op"]
            if operation not in operations:
                return bool(operation == "release")
            try:
                channel.send_bytes(json.dumps(operations[operation]()).encode())
            except RuntimeError as error:
                channel.send_bytes(failure(error))
            continue
        try:
            if message == WARM_UP:
                for _ in range(int(channel.recv_bytes())):
                    call_once(call, recorder, kept=False)
            else:
                call_once(call, recorder, kept=True)
                after()
        except Exception as error:
            channel.send_bytes(failure(error))
        else:
            channel.send_bytes(OK)


class Ear:
    """Waits until a descriptor can be read: by spinning at first, where there are processors to spare.

    Sleeping costs a wake-up of some 50 us at both ends of a hand-over; spinning spares it in every timed iteration.
    """

    def __init__(self, descriptor: int, spin_s: float = SPIN_S) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._spin_s = spin_s if (os.cpu_count() or 1) >= SPIN_PROCESSORS else 0.0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether there is something to read, or the other end has gone, within the time."""
        limit = self._spin_s if timeout_s is None else min(self._spin_s, timeout_s)
        end = time.perf_counter() + limit
        while time.perf_counter() < end:
            if self._poll.poll(0):
                return True
        return bool(self._poll.poll(None if timeout_s is None else max(0.0, timeout_s - limit) * 1e3))


def announce(channel: Connection, stage: str, **facts: object) -> None:
    """Say how far the start has come."""
    channel.send_bytes(json.dumps({"stage": stage, **facts}).encode())
