"""A program that runs for a while: its output bounded, and whatever it started ended with it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from ptxbench.models.client import CANCELLED, ModelError

_POLL_S = 0.2
_GRACE_S = 2.0
"""Between asking a process group to end and killing it."""
_PIECE_BYTES = 1 << 16
_BREATH_S = 0.001
"""After a full piece: a program that floods its output keeps neither us nor the other conversations busy."""
_REST_PIECES = 32
"""More than a pipe holds. What got away from the group may go on writing."""


class Ran(NamedTuple):
    """How a program ended, and the ends of what it said."""

    code: int | None
    """None where the time limit ended it."""
    output: bytes
    errors: bytes


def run_program(
    argv: Sequence[str], folder: Path, *, seconds: float, keep: tuple[int, int], cancelled: Callable[[], bool]
) -> Ran:
    """Run ``argv`` in ``folder`` for at most ``seconds``; of output and errors the last ``keep`` bytes are kept.

    Nothing of them goes to disk. Raises OSError where the program cannot be started, ModelError ``cancelled``.
    """
    # The environment is inherited whole: an agent has keys and settings of its own there.
    process = subprocess.Popen(
        argv,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    ends = _End(keep[0]), _End(keep[1])
    with process.stdout, process.stderr, _Pipes({process.stdout: ends[0], process.stderr: ends[1]}) as pipes:
        try:
            code = _wait(process, pipes, seconds, cancelled)
        finally:
            _end_group(process, pipes)
    return Ran(code, ends[0].held(), ends[1].held())


class _End:
    """The last bytes of a stream."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._held = bytearray()

    def add(self, piece: bytes) -> None:
        self._held += piece
        if len(self._held) > 2 * self._keep + _PIECE_BYTES:
            del self._held[: -self._keep]

    def held(self) -> bytes:
        return bytes(self._held[-self._keep :])


class _Pipes(contextlib.AbstractContextManager["_Pipes"]):
    """Reads several pipes as they fill, without waiting for any."""

    def __init__(self, ends: dict[IO[bytes], _End]) -> None:
        self._selector = selectors.DefaultSelector()
        for pipe, end in ends.items():
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, end)

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    @property
    def open(self) -> bool:
        """Whether anybody may still write."""
        return bool(self._selector.get_map())

    def read(self, seconds: float) -> bool:
        """Keep what comes; wait at most ``seconds`` for it. Returns whether anything came."""
        ready = self._selector.select(seconds)
        for key, _ in ready:
            piece = os.read(key.fd, _PIECE_BYTES)
            if piece:
                key.data.add(piece)
            else:
                self._selector.unregister(key.fileobj)
            if len(piece) == _PIECE_BYTES:
                time.sleep(_BREATH_S)
        return bool(ready)


def _wait(process: subprocess.Popen[bytes], pipes: _Pipes, seconds: float, cancelled: Callable[[], bool]) -> int | None:
    deadline = time.monotonic() + seconds
    while True:
        if cancelled():
            raise ModelError(CANCELLED, "the agent was told to stop")
        if process.poll() is not None:
            return process.returncode
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        _pass(process, pipes, min(_POLL_S, left))


def _pass(process: subprocess.Popen[bytes], pipes: _Pipes, seconds: float) -> None:
    """Let at most ``seconds`` go by: until output comes, or the program ends."""
    if pipes.open:
        pipes.read(seconds)
    else:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)


def _end_group(process: subprocess.Popen[bytes], pipes: _Pipes) -> None:
    """End the program and what it started, which outlives it in its group; then read what they had said."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while process.poll() is None and (left := deadline - time.monotonic()) > 0:
            _pass(process, pipes, min(_POLL_S, left))
    _signal_group(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(_REST_PIECES):
        if not pipes.open or not pipes.read(0):
            return


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
