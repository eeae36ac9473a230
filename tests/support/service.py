"""A real service in a process of its own, and clients that load it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxbench.client import cuda_solution
from ptxbench.profiler.environment import import_path
from tests.conftest import ROOT

START_TIMEOUT_S = 60.0
_READY = re.compile(r"http://127\.0\.0\.1:(\d+) serves")


class Service:
    """``ptxbench serve`` on a free port of this machine, started again on the same port and store after ``kill``."""

    def __init__(self, folder: Path, *options: str, root: Path = ROOT, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.port = 0
        self._options = options
        self._root = root
        self._env = os.environ | {"PYTHONPATH": import_path()} | (env or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        return (self.folder / "service.log").read_text()

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "service.log").unlink(missing_ok=True)
        with (self.folder / "service.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ptxbench", "serve", "--port", str(self.port), *self._arguments()],
                cwd=self._root,
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while (ready := _READY.search(self.log)) is None:
            assert self._process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)
        self.port = int(ready[1])

    def _arguments(self) -> list[str]:
        return ["--store", str(self.folder / "store"), *self._options]

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def terminate(self) -> None:
        """SIGTERM, without waiting for the end."""
        assert self._process is not None
        self._process.terminate()

    def wait(self, timeout_s: float = 30.0) -> int:
        """The exit status."""
        assert self._process is not None
        return self._process.wait(timeout_s)

    def stop(self) -> None:
        """End it, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.terminate()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self.kill()


@contextmanager
def serving(folder: Path, *options: str, root: Path = ROOT, env: dict[str, str] | None = None) -> Iterator[Service]:
    """A service, ended with the block."""
    service = Service(folder, *options, root=root, env=env)
    try:
        service.start()
        yield service
    finally:
        service.stop()


class Connection:
    """HTTP/1.1 over one connection that stays open, without more than that: the load itself must cost little."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
        """Status, headers, body. Raises OSError where the connection breaks."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        reader, writer = self._streams
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            answer = await reader.readexactly(int(headers.get("content-length", "0")))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            self.close()
            raise ConnectionResetError(str(error)) from error
        if headers.get("connection") == "close":
            self.close()
        return int(head[0].split(" ")[1]), headers, answer

    def close(self) -> None:
        if self._streams is not None:
            with suppress(OSError):
                self._streams[1].close()
            self._streams = None


@dataclass
class Load:
    """What clients saw."""

    submit_s: list[float] = field(default_factory=list)
    """From sending a submission that was acknowledged to its acknowledgement."""
    acknowledged_at: list[float] = field(default_factory=list)
    """When, on ``time.perf_counter``'s clock."""
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Solution -> the final answers about it."""
    ids: dict[str, str] = field(default_factory=dict)
    """Solution -> id of its task."""
    broken: int = 0
    """Requests whose connection broke or could not be made."""
    busy: int = 0
    """Requests that were told to come again."""
    resubmitted: int = 0
    """Submissions that were on disk already, though their first acknowledgement was lost."""

    def percentile(self, share: float) -> float:
        """Of the submissions' latencies, in milliseconds."""
        ordered = sorted(self.submit_s)
        return 1e3 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Fleet:
    """Clients that each submit a kernel, wait for its verdict, think, and submit the next, over restarts."""

    def __init__(self, service: Service, *, clients: int, tasks: int, kernels: Sequence[tuple[str, str]]) -> None:
        """``kernels``: definitions with sources. Every task has a name of its own, so no two are the same."""
        self.load = Load()
        self._service = service
        self._clients = clients
        self._names = [f"task{number}" for number in range(tasks)]
        self._bodies = [
            cuda_solution(definition, source, name="NAME", arch="h100").model_dump_json()
            for definition, source in kernels
        ]

    @property
    def finished(self) -> int:
        return len(self.load.results)

    async def run(self, *, ramp_s: float, think_s: float, seed: int = 0) -> Load:
        """All tasks. Clients begin over ``ramp_s`` seconds and think ``think_s`` seconds on average."""
        pending = list(enumerate(self._names))[::-1]

        async def client(number: int) -> None:
            chance = random.Random(seed + number)
            connection = Connection(self._service.port)
            await asyncio.sleep(ramp_s * number / self._clients)
            while pending:
                index, name = pending.pop()
                await self._task(connection, index, name, number, chance)
                await asyncio.sleep(chance.expovariate(1 / think_s) if think_s else 0)
            connection.close()

        await asyncio.gather(*(client(number) for number in range(self._clients)))
        return self.load

    async def _task(self, connection: Connection, index: int, name: str, number: int, chance: random.Random) -> None:
        solution = self._bodies[index % len(self._bodies)].replace('"NAME"', f'"{name}"')
        body = f'{{"solution":{solution},"client":"client{number}"}}'.encode()
        seconds, answer = await self._answered(connection, "POST", "/evaluate", body, chance)
        self.load.submit_s.append(seconds)
        self.load.acknowledged_at.append(time.perf_counter())
        self.load.resubmitted += not answer["created"]
        self.load.ids[name] = answer["task_id"]
        task: dict[str, Any] = {"status": "pending"}
        while task["status"] in ("pending", "running"):
            _, task = await self._answered(connection, "GET", f"/tasks/{answer['task_id']}?timeout=30", b"", chance)
        self.load.results.setdefault(name, []).append(task)

    async def _answered(
        self, connection: Connection, method: str, path: str, body: bytes, chance: random.Random
    ) -> tuple[float, dict[str, Any]]:
        """The time and the answer of the attempt that succeeded."""
        wait_s = 0.1
        while True:
            started = time.perf_counter()
            try:
                status, headers, content = await connection.request(method, path, body)
            except OSError:
                self.load.broken += 1
                await asyncio.sleep(chance.uniform(wait_s / 2, wait_s))
                wait_s = min(4.0, 2 * wait_s)
                continue
            if status == 200:
                return time.perf_counter() - started, json.loads(content)
            assert status in (429, 503), (status, content)
            self.load.busy += 1
            await asyncio.sleep(float(headers.get("retry-after", "1")) + chance.random())


def stored_kernels() -> list[tuple[str, str]]:
    """The definitions and sources of the reference solutions that have evidence."""
    folder = ROOT / "generated" / "reference" / "h100"
    return [(path.parent.name, path.read_text()) for path in sorted(folder.glob("*/kernel.cu"))]
