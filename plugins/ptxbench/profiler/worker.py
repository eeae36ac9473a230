"""Processes that run one bound kernel on request: sandboxes for candidates, one trusted worker for baselines.

The oracle talks to both in the same words, so that a candidate and its baseline are timed by the same procedure.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import sandbox
from ptxbench.records import RunStatus

START_TIMEOUT_S = 60.0
LOAD_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 10.0
OUTPUT_TAIL_CHARS = 2_000
SPARES = 3
"""Warm sandboxes kept ready: enough for a burst of evaluations without a context starting up beside a timing."""

SANDBOX_PROGRAM = Path(sandbox.__file__).resolve()
_KEPT_ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "PYTHONPATH")
"""What a candidate's process needs to find the driver and its three libraries; everything else stays out."""


class WorkerError(Exception):
    """The bound kernel did not answer as it should. Blamed on the candidate unless the worker is trusted."""

    def __init__(self, status: RunStatus, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Command(NamedTuple):
    """How to start a worker: ``argv`` runs it, the channel is passed as a descriptor or connected to by path."""

    argv: Sequence[str]
    by_path: bool = False


def sandbox_command(*flags: str, prefix: Sequence[str] = ()) -> Command:
    """The candidate's process, alone (``prefix`` empty) or under a tool that starts it."""
    # -P: the script's folder is not importable; -s: nor is the user's own site folder.
    argv = [*prefix, sys.executable, "-P", "-s", str(SANDBOX_PROGRAM), *flags]
    return Command(argv, by_path=bool(prefix))


def minimal_environment(folder: Path) -> dict[str, str]:
    """No secrets, no user settings: paths to the driver and a private temporary folder."""
    environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return environment | {
        "PATH": os.defpath,
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Worker:
    """One process in its own session, with one channel. ``close()`` ends it and everything it started."""

    def __init__(self, command: Command, *, environment: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ptxbench-"))
        self.folder.chmod(0o700)
        self._folders = [self.folder]
        self._output = self.folder / "output"
        self._listener: Listener | None = None
        self._channel: Connection | None = None
        self._ear: sandbox.Ear | None = None
        self._ready = False
        arguments = list(command.argv)
        passed: tuple[int, ...] = ()
        if command.by_path:
            path = str(self.folder / "channel")
            self._listener = Listener(path, "AF_UNIX")
            arguments += ["--connect", path]
        else:
            ours, theirs = socket.socketpair()
            passed = (theirs.fileno(),)
            arguments += ["--fd", str(theirs.fileno())]
            self._connected(Connection(ours.detach()))
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=environment or minimal_environment(self.folder),
                pass_fds=passed,
                start_new_session=True,
            )
        if not command.by_path:
            theirs.close()

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for imports and context. Raises InfrastructureError("sandbox_failed") with the process's last words."""
        if self._ready:
            return
        try:
            if self._listener is not None and self._channel is None:
                self._connected(self._accept(timeout_s))
            json.loads(self._receive(timeout_s))
        except WorkerError as fault:
            raise InfrastructureError(
                "sandbox_failed", f"a worker process did not start: {fault}; its last words: {self.output_tail()!r}"
            ) from fault
        self._ready = True

    def _connected(self, channel: Connection) -> None:
        self._channel = channel
        self._ear = sandbox.Ear(channel.fileno())

    def _accept(self, timeout_s: float) -> Connection:
        assert self._listener is not None
        # The listener's socket has no public timeout; the tool that starts the worker may die before it connects.
        listening: socket.socket = self._listener._listener._socket  # type: ignore[attr-defined]
        deadline = time.monotonic() + timeout_s
        listening.settimeout(0.2)
        while time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                accepted, _ = listening.accept()
                accepted.setblocking(True)
                return Connection(accepted.detach())
            if self.process.poll() is not None:
                raise WorkerError(RunStatus.CRASHED, f"exited with {self.process.returncode} before connecting")
        raise WorkerError(RunStatus.TIMEOUT, f"no connection within {timeout_s:.0f} s")

    def _receive(self, timeout_s: float) -> bytes:
        assert self._channel is not None
        try:
            if not self.answered(timeout_s):
                raise WorkerError(RunStatus.TIMEOUT, f"no answer within {timeout_s:.0f} s")
            return self._channel.recv_bytes()
        except (EOFError, ConnectionError):
            raise self._crash() from None

    def _crash(self) -> WorkerError:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return WorkerError(RunStatus.CRASHED, "closed its channel but did not end")
        if code < 0:
            return WorkerError(RunStatus.CRASHED, f"the process was ended by {signal.Signals(-code).name}", code)
        return WorkerError(RunStatus.CRASHED, f"the process exited with code {code} during a call", None)

    def _send(self, message: bytes) -> None:
        assert self._channel is not None
        try:
            self._channel.send_bytes(message)
        except OSError:
            raise self._crash() from None

    def _expect_ok(self, timeout_s: float, failed: RunStatus) -> None:
        reply = self._receive(timeout_s)
        if reply != sandbox.OK:
            text = json.loads(reply)
            raise WorkerError(failed, str(text["error"]), text.get("code"))

    def load(self, job: dict[str, Any], timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Bind a kernel to the arena. Raises WorkerError."""
        self._send(json.dumps(job).encode())
        self._expect_ok(timeout_s, RunStatus.LOAD_ERROR)

    def begin_call(self) -> int:
        """Ask for one call and return at once. Returns this process's clock in ns."""
        begin = time.perf_counter_ns()
        self._send(sandbox.CALL)
        return begin

    def answered(self, timeout_s: float) -> bool:
        """Whether an answer, or the worker's end, can be read now or within the time."""
        assert self._ear is not None
        return self._ear.wait(timeout_s)

    def finish_call(self, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Wait for the call that was begun. Raises WorkerError."""
        self._expect_ok(timeout_s, RunStatus.RUNTIME_ERROR)

    def call(self, timeout_s: float = CALL_TIMEOUT_S) -> int:
        """One synchronized call. Returns the wall time in ns by this process's clock. Raises WorkerError."""
        begin = self.begin_call()
        self.finish_call(timeout_s)
        return time.perf_counter_ns() - begin

    def warm_up(self, calls: int, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Calls that nobody times, in one hand-over. Raises WorkerError."""
        self._send(sandbox.WARM_UP)
        self._send(str(calls).encode())
        self._expect_ok(timeout_s * calls, RunStatus.RUNTIME_ERROR)

    def request(self, operation: str, timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Any]:
        """``collect``: what was recorded since the last collection. Raises WorkerError."""
        self._send(json.dumps({"op": operation}).encode())
        answer: dict[str, Any] = json.loads(self._receive(timeout_s))
        return answer

    def notify(self, operation: str, **fields: str) -> None:
        """Send a request that has no answer (``release``, ``forget``, ``quit``); a dead worker is no error."""
        with contextlib.suppress(WorkerError):
            self._send(json.dumps({"op": operation, **fields}).encode())

    def output_tail(self) -> str:
        """The end of what the process printed, for quoting."""
        with contextlib.suppress(OSError), self._output.open("rb") as output:
            output.seek(0, os.SEEK_END)
            output.seek(max(0, output.tell() - 4 * OUTPUT_TAIL_CHARS))
            return output.read().decode("utf-8", "replace")[-OUTPUT_TAIL_CHARS:]
        return ""

    def also_remove(self, folder: Path) -> None:
        """Remove this folder too when the worker closes."""
        self._folders.append(folder)

    def kill(self) -> None:
        """Send SIGKILL to the process group without waiting for the driver to clean up."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the process group, wait for its end and remove the private folders. Idempotent."""
        self.kill()
        self.process.wait()
        for end in (self._channel, self._listener):
            if end is not None:
                end.close()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class Spares:
    """Warm sandboxes. ``replenish`` is called only where no timing can be disturbed by a context starting up."""

    def __init__(self, size: int = SPARES) -> None:
        self._size = size
        self._waiting: deque[Worker] = deque()
        self._retired: list[Worker] = []

    def replenish(self) -> None:
        """Start what is missing, without waiting for it."""
        while len(self._waiting) < self._size:
            self._waiting.append(Worker(sandbox_command()))

    def settle(self) -> None:
        """Wait until every started spare is ready and every retired one is gone: neither may disturb a timing."""
        for spare in self._waiting:
            spare.wait_ready()
        self.reap()

    def retire(self, worker: Worker) -> None:
        """Kill a used sandbox now; its end, some 70 ms on the device, is waited for when somebody must know."""
        worker.kill()
        self._retired.append(worker)

    def reap(self) -> None:
        """Wait for the end of every retired sandbox."""
        while self._retired:
            self._retired.pop().close()

    def take(self) -> Worker:
        """A warm sandbox."""
        if not self._waiting:
            self.replenish()
        worker = self._waiting.popleft()
        worker.wait_ready()
        return worker

    def close(self) -> None:
        """End all spares."""
        self.reap()
        while self._waiting:
            self._waiting.popleft().close()
