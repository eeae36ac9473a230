"""The evaluation process: an interpreter of its own, so that judging never keeps a submission waiting.

It is a child of the HTTP process and ends with it, whatever ends that: its channel then has no other end. Messages are
JSON, ``{"op": ...}``; a task is followed by one message more, its submission, and a result by two, its bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from ptxbench.agent.evaluation import Evaluator
from ptxbench.client.shapes import TaskKind
from ptxbench.errors import InfrastructureError, PtxBenchError
from ptxbench.profiler import Profiler, open_profiler
from ptxbench.profiler.protocol import EVIDENCE_FOLDERS
from ptxbench.service.catalog import Catalog
from ptxbench.service.judging import Judge
from ptxbench.service.recent_builds import RecentBuilds
from ptxbench.service.store import failed

NICENESS = 5
"""Of an evaluation process that reads evidence back."""


class Channel:
    """The end of the pipe in this process; any thread may send."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """The next message and what belongs to it; None: the other end is gone."""
        try:
            message: dict[str, Any] = json.loads(self._connection.recv_bytes())
            return message, self._connection.recv_bytes() if message["op"] == "task" else b""
        except (EOFError, OSError):
            return None

    def send(self, message: dict[str, Any], *blobs: bytes) -> None:
        """One message and what belongs to it. Nothing happens if nobody listens any more."""
        with self._lock:
            try:
                for part in (json.dumps(message).encode(), *blobs):
                    self._connection.send_bytes(part)
            except OSError:
                return


class Worker:
    """Does what it is told over the channel."""

    def __init__(self, options: argparse.Namespace, channel: Channel) -> None:
        """Raises PtxBenchError for what keeps the profiler or the cases from being opened."""
        self._channel = channel
        self._stopped = threading.Event()
        root = Path(options.root)
        roots = (*(root / folder for folder in EVIDENCE_FOLDERS), *map(Path, options.evidence))
        self._profiler: Profiler = open_profiler(
            options.profiler, root=root, evidence_roots=roots, stopped=self._stopped.is_set
        )
        self._origin = self._profiler.origin
        catalog = Catalog.load(root, options.suite, [Path(folder) for folder in options.trace_sets], options.arch)
        self._evaluator = Evaluator(RecentBuilds.discover, max(1, os.cpu_count() or 1))
        self._judge = Judge(catalog, self._profiler, self._evaluator)
        self._pool = ThreadPoolExecutor(options.slots, thread_name_prefix="ptxbench-task")
        self._looks = ThreadPoolExecutor(1, thread_name_prefix="ptxbench-health")
        self._look: Future[None] | None = None

    def run(self) -> None:
        """Until the other end is gone or says stop."""
        if self._origin == "replayed":
            # All of it is work for the processor, and submissions come first. Whoever measures must not be slowed down.
            os.nice(NICENESS)
        self._channel.send({"op": "hello", "origin": self._origin, "pid": os.getpid()})
        while True:
            received = self._channel.receive()
            if received is None:
                # Nobody is left to hear results. What measures ends with this process, which frees the device for the
                # service that comes next.
                os._exit(0)
            message, request = received
            if message["op"] == "stop":
                break
            if message["op"] == "health":
                # What the profiler says of itself may take as long as its device takes to start.
                self._channel.send({"op": "alive"})
                if self._look is None or self._look.done():
                    self._look = self._looks.submit(self._health)
            else:
                self._pool.submit(self._task, message, request)
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._looks.shutdown(wait=False, cancel_futures=True)
        self._profiler.close()

    def _task(self, message: dict[str, Any], request: bytes) -> None:
        started = time.perf_counter()
        self._channel.send({"op": "begun", "id": message["id"]})
        try:
            kind = cast(TaskKind, message["kind"])
            found = self._judge.perform(kind, request, message["solution"])
        except Exception as error:  # whatever it is: a task without an answer would be waited for without end
            text = f"{type(error).__name__}: {error}"
            found = failed(text, {"kind": "internal_error", "message": text})
        seconds = time.perf_counter() - started
        answer = {"op": "done", "id": message["id"], "status": found.status, "seconds": seconds}
        self._channel.send(answer, found.result, found.detail)

    def _health(self) -> None:
        try:
            health = self._profiler.health().model_dump(mode="json")
            self._channel.send({"op": "health", "health": health})
        except PtxBenchError as error:
            kind = error.kind if isinstance(error, InfrastructureError) else "input_error"
            self._channel.send({"op": "health", "fault": {"kind": kind, "message": str(error)}})


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="ptxbench.service.worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--root", required=True)
    parser.add_argument("--profiler", required=True)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--arch")
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--evidence", action="append", default=[])
    parser.add_argument("--trace-set", dest="trace_sets", action="append", default=[])
    options = parser.parse_args(arguments)
    # A terminal interrupts its whole group; the HTTP process decides what that means here.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel = Channel(Connection(options.fd))
    try:
        worker = Worker(options, channel)
    except PtxBenchError as error:
        channel.send({"op": "refused", "message": str(error)})
        return 2
    worker.run()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads may be deep in a measurement whose result nobody will read.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
