"""Processes that run one bound kernel on request: sandboxes for candidates, one trusted worker for baselines.

The oracle talks to both in the same words, so that a candidate and its baseline are timed by the same procedure.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, ClassVar, NamedTuple

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import sandbox
from ptxbench.profiler.containment import TOOL, Choice, hidden_folders
from ptxbench.profiler.endings import LIVING, end_orphans, remove_folder
from ptxbench.profiler.environment import minimal_environment, parent_folder
from ptxbench.profiler.objects import copy_object
from ptxbench.profiler.processes import Handle, await_end, descendants, end_all, ending
from ptxbench.profiler.replies import Inbox, Recording, WorkerError, expect_stage, failure_of, foreign, recording_of
from ptxbench.records import Containment, RunStatus

START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 5.0
"""From the end of the channel to the end of the process."""
GONE_TIMEOUT_S = 30.0
"""From SIGKILL to the end of a process whose kernels the driver has to stop."""
KEEPERS_TIMEOUT_S = 2.0
"""From the end of a candidate's process to that of its keepers."""
_END_POLL_S = 0.002
LOAD_TIMEOUT_S = 20.0
CALL_TIMEOUT_S = 10.0
OUTPUT_TAIL_CHARS = 2_000
SANDBOX_PROGRAM = Path(sandbox.__file__).resolve().with_name("__main__.py")
ALWAYS = ("session", "environment", "descriptors", "folder")
"""Layers that starting a worker puts around it: its own session, a minimal environment, no descriptor but the channel's
and the standard ones, an empty folder."""


class Command(NamedTuple):
    """How to start a worker: ``argv`` runs it, the channel is passed as a descriptor or connected to by path."""

    argv: Sequence[str]
    by_path: bool = False
    missing: Mapping[str, str] = MappingProxyType({})
    """Layers that it was not told to put around itself -> why."""


def sandbox_command(*flags: str, prefix: Sequence[str] = (), choice: Choice | None = None) -> Command:
    """The candidate's process, alone (``prefix`` empty) or under a tool that starts it, in the layers of a choice.

    Without one it has those that stand beside every tool.
    """
    choice = choice or Choice(layers=TOOL)
    layers = f"--layers={','.join(choice.layers)}"
    hidden = [f"--hide={folder}" for folder in hidden_folders()] if "mount" in choice.layers else []
    # -P: the script's folder is not importable; -s: nor is the user's own site folder.
    argv = [*prefix, sys.executable, "-P", "-s", str(SANDBOX_PROGRAM), layers, *hidden, *flags]
    return Command(argv, by_path=bool(prefix), missing=choice.dropped)


class Worker:
    """One process in its own session, with one channel. ``close()`` ends it and everything it started."""

    call_timeout_s: ClassVar[float] = CALL_TIMEOUT_S
    """For one call, where none is given. Only the self-test's oracle has a shorter one, for all of its workers."""

    def __init__(self, command: Command, *, environment: dict[str, str] | None = None) -> None:
        """Start it. Raises InfrastructureError("sandbox_failed") or ("disk_full")."""
        self._folders: list[Path] = []
        self._listener: Listener | None = None
        self._channel: Connection | None = None
        self._inbox: Inbox | None = None
        self._output: BinaryIO | None = None
        self._printed: BinaryIO | None = None
        self._warming = False
        self._ready = False
        self._missing = command.missing
        self._handle: Handle | None = None
        self.containment: Containment | None = None
        """Layers around the process, as it said before there was a candidate in it; None until it is ready."""
        self.deadline = math.inf
        """On the monotonic clock: no answer is awaited beyond it, so that slow calls cannot add up without end."""
        try:
            # Readable by this user alone.
            self.folder = Path(tempfile.mkdtemp(prefix="ptxbench-", dir=parent_folder()))
            self._folders.append(self.folder)
            self.work = self.folder / "work"
            self._objects = self.folder / "object"
            self.work.mkdir()
            self._objects.mkdir()
            # Read back by descriptor: whatever the process puts in the file's place is never opened. By one of its own:
            # position and flags of the other are the process's as well, and with O_DIRECT among them a reading fails.
            self._output = (self.folder / "output").open("wb")
            self._printed = (self.folder / "output").open("rb")
            self.process = self._start(command, environment or minimal_environment(self.work))
            self.pid = self.process.pid
            """Of the candidate's process, once its imports are done."""
            LIVING.add(self)
        except OSError as error:
            self._release()
            raise InfrastructureError(
                "disk_full" if error.errno == errno.ENOSPC else "sandbox_failed",
                f"expected to start {command.argv[0]} as a worker in {tempfile.gettempdir()}, found: {error}; "
                "check the program, the folder and this machine's limits on processes",
            ) from error

    def _start(self, command: Command, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with contextlib.ExitStack() as stack:
            theirs: list[int] = []
            if command.by_path:
                path = str(self.folder / "channel")
                self._listener = Listener(path, "AF_UNIX")
                where = ["--connect", path]
            else:
                ours, other = socket.socketpair()
                theirs.append(stack.enter_context(other).fileno())
                self._connected(Connection(ours.detach()))
                where = ["--fd", str(theirs[0])]
            return subprocess.Popen(
                [*command.argv, *where],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                cwd=self.work,
                env=environment,
                pass_fds=theirs,
                start_new_session=True,
            )

    def warm(self) -> None:
        """Ask for the CUDA context if the imports are done, without waiting. Raises as ``wait_ready`` does."""
        if not self._warming and self._inbox is not None and self.answered(0.0):
            self._ask_for_context(START_TIMEOUT_S)

    @property
    def own_pid(self) -> int:
        """The process that was started here: the candidate's, its keeper or a tool."""
        return self.process.pid

    @property
    def warming(self) -> bool:
        """Whether its context has been asked for, and may be being created."""
        return self._warming

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait for imports and context. Raises InfrastructureError("sandbox_failed") with the process's last words."""
        if self._ready:
            return
        if not self._warming:
            self._ask_for_context(timeout_s)
        with self._starting():
            said = expect_stage(self._receive(timeout_s), "ready")
        self.containment = Containment(active=(*ALWAYS, *said.active), missing={**self._missing, **said.missing})
        self._ready = True

    def _ask_for_context(self, timeout_s: float) -> None:
        with self._starting():
            if self._listener is not None and self._channel is None:
                self._connected(self._accept(timeout_s))
            expect_stage(self._receive(timeout_s), "imported")
            self._take_hold()
            self._send(sandbox.CONTEXT)
        self._warming = True

    def _take_hold(self) -> None:
        """Hold the process that the candidate will be in: the last one below its keepers, if it has any."""
        self.pid = (self.process.pid, *descendants(self.process.pid))[-1]
        if self.pid != self.process.pid:
            with contextlib.suppress(OSError):
                self._handle = Handle(self.pid)

    @contextlib.contextmanager
    def _starting(self) -> Iterator[None]:
        try:
            yield
        except WorkerError as fault:
            raise InfrastructureError(
                "sandbox_failed", f"a worker process did not start: {fault}; its last words: {self.output_tail()!r}"
            ) from fault

    def _connected(self, channel: Connection) -> None:
        self._channel = channel
        self._inbox = Inbox(channel.fileno())

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
            code = self.exit_code(0.0)
            if code is not None:
                raise WorkerError(RunStatus.CRASHED, f"the process {ending(code)} before connecting")
        raise WorkerError(RunStatus.TIMEOUT, f"no connection within {timeout_s:.0f} s")

    def _receive(self, timeout_s: float) -> bytes:
        assert self._inbox is not None
        left_s = max(0.0, self.deadline - time.monotonic())
        try:
            return self._inbox.receive(min(timeout_s, left_s))
        except TimeoutError:
            limit = f"within {timeout_s:g} s" if timeout_s <= left_s else "within the time for all calls"
            raise WorkerError(RunStatus.TIMEOUT, f"no answer {limit}") from None
        except (EOFError, ConnectionError):
            raise self._crash() from None

    def _crash(self) -> WorkerError:
        code = self.exit_code(END_TIMEOUT_S)
        if code is None:
            return WorkerError(RunStatus.CRASHED, "the process closed its channel but did not end")
        return WorkerError(RunStatus.CRASHED, f"the process {ending(code)} during a call", code if code < 0 else None)

    def exit_code(self, timeout_s: float) -> int | None:
        """The exit code, negative for a signal, once the process ends within the time; else None.

        The process is left unreaped until ``close()``: as long as it is, its group's number cannot be given to others.
        """
        deadline = time.monotonic() + timeout_s
        while self.process.returncode is None:
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            if time.monotonic() >= deadline:
                return None
            time.sleep(_END_POLL_S)
        return self.process.returncode

    def _send(self, message: bytes) -> None:
        assert self._channel is not None
        try:
            self._channel.send_bytes(message)
        except OSError:
            raise self._crash() from None

    def _expect_done(self, timeout_s: float, failed: RunStatus) -> None:
        reply = self._receive(timeout_s)
        status = self._seal.open_status(self._nonce, reply)
        if status is None:
            raise foreign(reply, failed)
        if status.failed:
            said = failure_of(self.request(sandbox.EXPLAIN), failed)
            raise WorkerError(said.status, str(said), status.code)

    def _expect_silence(self) -> None:
        """Nothing may wait to be read before a request: a reply sent ahead would make an unfinished call look done."""
        assert self._inbox is not None
        if not self._inbox.waiting(0.0):
            return
        try:
            self._inbox.receive(0.0)
        except TimeoutError:
            pass  # part of a message: said as well
        except (EOFError, ConnectionError):
            raise self._crash() from None
        raise WorkerError(RunStatus.RUNTIME_ERROR, "the process answered without being asked")

    def _new_nonce(self) -> bytes:
        self._nonce = secrets.token_bytes(sandbox.NONCE_BYTES)
        return self._nonce

    def object_path(self, so_path: str) -> Path:
        """Where the process finds a shared object: a copy for itself, for it sees no folder that others share."""
        return self._objects / Path(so_path).name

    def load(self, job: dict[str, Any], timeout_s: float = LOAD_TIMEOUT_S) -> None:
        """Bind a kernel to the arena.

        Raises WorkerError, InfrastructureError("internal_error") for an object that is not the one that was built.
        """
        self._expect_silence()
        if so_path := job.get("so_path"):
            copy = self.object_path(so_path)
            copy_object(Path(so_path), copy, job.get("so_sha256"))
            job = {**job, "so_path": str(copy)}
        secret = secrets.token_bytes(sandbox.SECRET_BYTES)
        self._seal = sandbox.Seal(secret)
        self._send(json.dumps({**job, "secret": secret.hex(), "nonce": self._new_nonce().hex()}).encode())
        self._expect_done(timeout_s, RunStatus.LOAD_ERROR)

    def begin_call(self) -> int:
        """Ask for one call and return at once. Returns this process's clock in ns."""
        self._expect_silence()
        message = sandbox.CALL + self._new_nonce()
        begin = time.perf_counter_ns()
        self._send(message)
        return begin

    def answered(self, timeout_s: float) -> bool:
        """Whether an answer, or the worker's end, can be read now or within the time."""
        assert self._inbox is not None
        return self._inbox.waiting(timeout_s)

    def finish_call(self, timeout_s: float | None = None) -> None:
        """Wait for the call that was begun. Raises WorkerError."""
        self._expect_done(timeout_s or self.call_timeout_s, RunStatus.RUNTIME_ERROR)

    def call(self, timeout_s: float | None = None) -> int:
        """One synchronized call. Returns the wall time in ns by this process's clock. Raises WorkerError."""
        begin = self.begin_call()
        self.finish_call(timeout_s)
        return time.perf_counter_ns() - begin

    def warm_up(self, calls: int, timeout_s: float | None = None) -> None:
        """Calls that nobody times, in one hand-over. Raises WorkerError."""
        self._expect_silence()
        self._send(sandbox.WARM_UP + self._new_nonce() + str(calls).encode())
        self._expect_done((timeout_s or self.call_timeout_s) * calls, RunStatus.RUNTIME_ERROR)

    def request(self, operation: str, timeout_s: float = CALL_TIMEOUT_S) -> bytes:
        """The unread answer to ``collect`` or, of the trusted worker, ``publish``. Raises WorkerError."""
        self._expect_silence()
        self._send(json.dumps({"op": operation, "nonce": self._new_nonce().hex()}).encode())
        reply = self._receive(timeout_s)
        body = self._seal.open_body(self._nonce, reply)
        if body is None:
            raise foreign(reply, RunStatus.RUNTIME_ERROR)
        return body

    def collect(self, calls: int) -> Recording:
        """What was recorded since the last collection, which must be ``calls`` calls. Raises WorkerError."""
        return recording_of(self.request("collect"), calls)

    def notify(self, operation: str, **fields: str) -> None:
        """Send a request that has no answer (``release``, ``forget``, ``quit``); a dead worker is no error."""
        if self._channel is not None:
            with contextlib.suppress(OSError):
                self._channel.send_bytes(json.dumps({"op": operation, **fields}).encode())

    def output_tail(self) -> str:
        """The end of what the process printed, for quoting."""
        if self._printed is None or self._printed.closed:
            return ""
        size, most = os.fstat(self._printed.fileno()).st_size, 4 * OUTPUT_TAIL_CHARS
        text = os.pread(self._printed.fileno(), most, max(0, size - most))
        return text.decode("utf-8", "replace")[-OUTPUT_TAIL_CHARS:]

    def also_remove(self, folder: Path) -> None:
        """Remove this folder too when the worker closes."""
        self._folders.append(folder)

    def kill(self) -> None:
        """Send SIGKILL to all that was started here without waiting for the driver to clean up."""
        if self.process.returncode is not None:
            return
        if self._handle is not None and self.containment is not None and "pid" in self.containment.active:
            # Its namespace ends with it. The keepers stay until then, so that whoever looks sees whose process it is.
            self._handle.kill()
            return
        end_all(self.process.pid)
        self._kill_group()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill all processes, wait for their end and remove the private folders. Idempotent."""
        self.kill()
        if self._handle is not None:
            await_end(self._handle, GONE_TIMEOUT_S)
            self._handle = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(KEEPERS_TIMEOUT_S)
        if self.process.returncode is None:
            self._kill_group()
            self.process.wait()
        self._release()
        LIVING.discard(self)
        end_orphans()

    def _release(self) -> None:
        for end in (self._channel, self._listener, self._output, self._printed):
            if end is not None:
                end.close()
        self.remove_folders()

    def remove_folders(self) -> None:
        """Remove the private folders, whoever still uses them."""
        for folder in self._folders:
            remove_folder(folder)
