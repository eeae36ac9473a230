"""The HTTP process's end of the evaluation process: starts it, talks to it, and says when it has died."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from ptxbench.profiler.environment import import_path
from ptxbench.service.settings import Settings
from ptxbench.service.store import Finished, StoredTask

END_TIMEOUT_S = 10.0

Heard = Callable[[dict[str, Any], Finished | None], None]


class Evaluations:
    """One evaluation process. ``heard`` is called in a thread of this object's, for every message and once, with
    ``{"op": "died"}``, when the process is gone."""

    def __init__(self, settings: Settings, heard: Heard) -> None:
        """Raises OSError where there is no memory, process or descriptor left, RuntimeError where no thread is."""
        self._heard = heard
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "ptxbench.service.worker", *_arguments(settings, theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": import_path()},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    cwd=settings.root,
                )
            except OSError:
                ours.close()
                raise
        self._channel = Connection(ours.detach())
        self._outbox: queue.SimpleQueue[tuple[bytes, ...] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._listen, name="ptxbench-evaluations", daemon=True)
        self._thread.start()
        threading.Thread(target=self._speak, name="ptxbench-evaluations-out", daemon=True).start()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self, task: StoredTask) -> None:
        """Have a task done. Whether it is, is heard."""
        self._send({"op": "task", "id": task.id, "kind": task.kind, "solution": task.solution}, task.request)

    def ask_health(self) -> None:
        """The answer is heard."""
        self._send({"op": "health"})

    def close(self) -> None:
        """End the process in good order, or after ``END_TIMEOUT_S`` seconds in any. Idempotent."""
        self._send({"op": "stop"})
        try:
            self._process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._thread.join(END_TIMEOUT_S)

    def kill(self) -> None:
        """End the process, whatever it does. Nothing is waited for; its end is heard."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, message: dict[str, Any], *blobs: bytes) -> None:
        self._outbox.put((json.dumps(message).encode(), *blobs))

    def _speak(self) -> None:
        # Not on the event loop: the pipe is full as long as a process that is busy does not read it.
        with suppress(OSError):
            while (parts := self._outbox.get()) is not None:
                for part in parts:
                    self._channel.send_bytes(part)

    def _listen(self) -> None:
        try:
            while True:
                message: dict[str, Any] = json.loads(self._channel.recv_bytes())
                found = None
                if message["op"] == "done":
                    found = Finished(message["status"], self._channel.recv_bytes(), self._channel.recv_bytes())
                self._heard(message, found)
        except (EOFError, OSError):
            pass
        finally:
            self._outbox.put(None)
            self._process.wait()
            self._heard({"op": "died", "status": self._process.returncode}, None)


def _arguments(settings: Settings, descriptor: int) -> list[str]:
    arguments = ["--fd", str(descriptor), "--root", str(settings.root), "--profiler", settings.profiler]
    arguments += ["--suite", settings.suite, "--slots", str(settings.slots)]
    arguments += ["--arch", settings.arch] if settings.arch is not None else []
    for folder in settings.evidence:
        arguments += ["--evidence", str(folder)]
    for folder in settings.trace_sets:
        arguments += ["--trace-set", str(folder)]
    return arguments
