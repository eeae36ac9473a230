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
from .messages import CALL, EXPLAIN, MAX_MESSAGE_CHARS, WARM_UP
from .sealing import NONCE_BYTES, Seal, Status

SPIN_S = 0.02
"""Longer than staging, and than most kernels."""
SPIN_PROCESSORS = 4


def failure(error: BaseException) -> tuple[bytes, int]:
    """An exception as text for an answer, and the CUDA error that the context is left with."""
    from cuda.bindings import runtime as cudart

    (code,) = cudart.cudaDeviceSynchronize()
    text = f"{type(error).__name__}: {error}"[:MAX_MESSAGE_CHARS]
    return json.dumps({"error": text, "code": int(code)}).encode(), int(code)


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


class Answers:
    """The worker's end of one job: every answer to the request that it belongs to."""

    def __init__(self, channel: Connection, job: dict[str, Any]) -> None:
        self._channel = channel
        self._seal = Seal(bytes.fromhex(job["secret"]))
        self._nonce = bytes.fromhex(job["nonce"])
        self._failure = b"{}"

    def asked(self, nonce: bytes) -> None:
        """The next answer is to the request with this nonce."""
        self._nonce = nonce

    def done(self) -> None:
        """It went well."""
        self._channel.send_bytes(self._seal.close_status(self._nonce, Status(failed=False, code=0)))

    def failed(self, error: BaseException) -> None:
        """It did not; what was wrong is told when asked for (``EXPLAIN``)."""
        self._failure, code = failure(error)
        self._channel.send_bytes(self._seal.close_status(self._nonce, Status(failed=True, code=code)))

    def body(self, operation: Callable[[], dict[str, Any]]) -> None:
        """What an operation returns, or how it failed."""
        try:
            text = json.dumps(operation()).encode()
        except RuntimeError as error:
            text, _ = failure(error)
        self._channel.send_bytes(self._seal.close_body(self._nonce, text))

    def explain(self) -> None:
        """What was wrong at the last failure."""
        self._channel.send_bytes(self._seal.close_body(self._nonce, self._failure))

    def explain_refusal(self) -> None:
        """Wait to be asked why a job could not be loaded."""
        request = json.loads(self._channel.recv_bytes())
        if request["op"] == EXPLAIN:
            self.asked(bytes.fromhex(request["nonce"]))
            self.explain()


def serve_calls(
    channel: Connection,
    call: Callable[[], None],
    recorder: Recorder | None,
    answers: Answers,
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
        kind, nonce, rest = message[:1], message[1 : 1 + NONCE_BYTES], message[1 + NONCE_BYTES :]
        if kind not in (CALL, WARM_UP):
            request = json.loads(message)
            if request["op"] != EXPLAIN and request["op"] not in operations:
                return bool(request["op"] == "release")
            answers.asked(bytes.fromhex(request["nonce"]))
            answers.explain() if request["op"] == EXPLAIN else answers.body(operations[request["op"]])
            continue
        answers.asked(nonce)
        try:
            if kind == WARM_UP:
                for _ in range(int(rest)):
                    call_once(call, recorder, kept=False)
            else:
                call_once(call, recorder, kept=True)
                after()
        except Exception as error:
            answers.failed(error)
        else:
            answers.done()


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
