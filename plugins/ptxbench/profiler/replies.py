"""What a worker says, taken as a claim: bounded in time and size and checked in form before anything uses it.

A candidate shares its process with the sandbox's program, so every byte that arrives behind ``load`` may be forged.
Whatever is wrong with a reply becomes a ``WorkerError``, which blames the candidate; nothing else comes out of one.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints, ValidationError

from ptxbench.profiler.sandbox import MAX_LAUNCHES, MAX_MESSAGE_CHARS, Ear
from ptxbench.records import Record, RunStatus

MAX_REPLY_BYTES = 4 << 20
"""A collection of 64 kernels with long mangled names and 50 iterations takes some 300 KiB."""
MAX_SPAN_NS = 10**12
"""1000 s, far beyond every call's time limit; keeps the arithmetic on spans within floats."""
_SHOWN_BYTES = 80
_READ_BYTES = 1 << 16
_LENGTH_BYTES = 4


class WorkerError(Exception):
    """The bound kernel did not answer as it should. Blamed on the candidate unless the worker is trusted."""

    def __init__(self, status: RunStatus, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


Span = Annotated[int, Field(ge=0, le=MAX_SPAN_NS)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Extent = Annotated[int, Field(gt=0, lt=1 << 31)]
PerCall = Annotated[float, Field(ge=0, lt=1 << 31)]


class Launch(NamedTuple):
    """One kind of launch: a kernel with its configuration."""

    name: str
    grid: tuple[Extent, Extent, Extent]
    block: tuple[Extent, Extent, Extent]
    dynamic_smem_bytes: Count
    registers: Count
    launches_per_call: PerCall


class Recording(Record):
    """Answer to ``collect``: what CUPTI saw since the last collection, call by call, warm-ups left out."""

    spans: tuple[Span, ...]
    """Ns from the first activity's start to the last one's end; 0 where the device did nothing."""
    activities: tuple[Count, ...]
    stray: Count
    """Activities that started outside every call, or outlasted theirs."""
    launches: Annotated[tuple[Launch, ...], Field(max_length=MAX_LAUNCHES)]


class _Planned(Record):
    """Answer to ``plan``."""

    detail: str


class _Failure(Record):
    """Answer to a job or call that failed."""

    error: Annotated[str, StringConstraints(max_length=MAX_MESSAGE_CHARS)]
    code: Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)] | None = None


Stage = Literal["imported", "ready"]
"""How far a worker's start has come: libraries imported; CUDA context up."""


class Start(Record):
    """What a worker says while it starts, before there is a candidate in it."""

    stage: Stage
    active: tuple[str, ...] = ()
    """Layers around it."""
    missing: dict[str, str] = Field(default_factory=dict)
    """Layer that it was told to put around itself and could not -> why."""


def recording_of(reply: bytes, calls: int) -> Recording:
    """Read the answer to ``collect`` behind ``calls`` calls. Raises WorkerError for any other answer."""
    try:
        recording = Recording.model_validate_json(reply)
    except ValidationError as error:
        with contextlib.suppress(ValidationError):
            failure = _Failure.model_validate_json(reply)
            raise WorkerError(RunStatus.RUNTIME_ERROR, failure.error, failure.code) from None
        raise _malformed(reply, RunStatus.RUNTIME_ERROR, "a recording of its calls", error) from None
    if not len(recording.spans) == len(recording.activities) == calls:
        raise WorkerError(
            RunStatus.RUNTIME_ERROR,
            f"the process answered with something else than a recording of its calls: expected spans and activities "
            f"of {calls} calls, found {len(recording.spans)} and {len(recording.activities)}",
        )
    return recording


def detail_of(reply: bytes) -> str:
    """Read the trusted worker's answer to ``plan``. Raises WorkerError for any other answer."""
    try:
        return _Planned.model_validate_json(reply).detail
    except ValidationError:
        raise failure_of(reply, RunStatus.RUNTIME_ERROR) from None


def foreign(reply: bytes, status: RunStatus) -> WorkerError:
    """The error that an answer is which does not belong to the request it came behind."""
    shown = repr(reply[:_SHOWN_BYTES]) + ("..." if len(reply) > _SHOWN_BYTES else "")
    text = f"the process answered with something else than an answer to this request, of {len(reply)} bytes"
    return WorkerError(status, f"{text}: {shown}")


def failure_of(reply: bytes, status: RunStatus) -> WorkerError:
    """The error that an answer other than OK stands for, or that it is itself."""
    try:
        failure = _Failure.model_validate_json(reply)
    except ValidationError as error:
        return _malformed(reply, status, "OK or an error", error)
    return WorkerError(status, failure.error, failure.code)


def expect_stage(message: bytes, stage: Stage) -> Start:
    """Accept a starting worker's message. Raises WorkerError for any other."""
    try:
        found = Start.model_validate_json(message)
    except ValidationError as error:
        raise _malformed(message, RunStatus.LOAD_ERROR, stage, error) from None
    if found.stage != stage:
        raise WorkerError(RunStatus.LOAD_ERROR, f"expected a worker that is {stage}, found one that is {found.stage}")
    return found


def _malformed(reply: bytes, status: RunStatus, expected: str, error: ValidationError) -> WorkerError:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "the reply"
    shown = repr(reply[:_SHOWN_BYTES]) + ("..." if len(reply) > _SHOWN_BYTES else "")
    return WorkerError(
        status, f"the process answered with something else than {expected}: {field}: {first['msg']}; found {shown}"
    )


class Inbox:
    """Reads messages of ``multiprocessing.connection`` from a peer that may be hostile.

    The standard library's own reading has neither a time limit within a message nor one on its size.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._ear = Ear(descriptor)
        self._buffer = bytearray()

    def waiting(self, timeout_s: float) -> bool:
        """Whether bytes, or the end of the stream, can be read now or within the time."""
        return bool(self._buffer) or self._ear.wait(timeout_s)

    def receive(self, timeout_s: float) -> bytes:
        """The next message, whole.

        Raises TimeoutError, EOFError or ConnectionError at the end of the stream, WorkerError for a message beyond
        ``MAX_REPLY_BYTES``.
        """
        deadline = time.monotonic() + timeout_s
        expired = False
        while (message := self._whole_message()) is None:
            if expired or not self._ear.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError
            received = self._received()
            if received == b"":
                raise EOFError
            self._buffer += received or b""
            expired = time.monotonic() >= deadline
        return message

    def _received(self) -> bytes | None:
        """What can be read now, empty at the end of the stream.

        None where there is nothing after all: a byte out of band (``MSG_OOB``) makes a socket look readable, and a
        reader that waits would wait for as long as the peer likes.
        """
        end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=self._descriptor)
        try:
            return end.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        finally:
            end.detach()

    def _whole_message(self) -> bytes | None:
        if len(self._buffer) < _LENGTH_BYTES:
            return None
        # multiprocessing.connection: a signed big-endian length; negative announces more than 2 GiB.
        length = int.from_bytes(self._buffer[:_LENGTH_BYTES], "big", signed=True)
        if not 0 <= length <= MAX_REPLY_BYTES:
            found = f"{length} bytes" if length >= 0 else "more than 2 GiB"
            raise WorkerError(
                RunStatus.RUNTIME_ERROR,
                f"the process announced a reply of {found}; expected at most {MAX_REPLY_BYTES}",
            )
        end = _LENGTH_BYTES + length
        if len(self._buffer) < end:
            return None
        message = bytes(self._buffer[_LENGTH_BYTES:end])
        del self._buffer[:end]
        return message
