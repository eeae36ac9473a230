"""The event loop's side of an evaluation process, with a real one that does nothing it is told."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ptxbench.service import evaluations, peer
from ptxbench.service.metrics import Metrics
from ptxbench.service.peer import Peer
from ptxbench.service.settings import Settings
from ptxbench.service.store import Finished, StoredTask

SILENT = """
import json, sys, time
from multiprocessing.connection import Connection
Connection(int(sys.argv[2])).send_bytes(json.dumps({"op": "hello", "origin": "measured", "pid": 0}).encode())
time.sleep(60)
"""
TASK = StoredTask("a", "measured:0", "evaluate", "gemm", "a_1", "", "bulk", b"x" * (3 << 20), 0.0)


class Hears:
    def __init__(self) -> None:
        self.ready = self.died = 0

    def on_ready(self) -> None:
        self.ready += 1

    def on_begun(self, task_id: str) -> None:
        raise AssertionError(task_id)

    def on_done(self, task_id: str, found: Finished, seconds: float) -> None:
        raise AssertionError(task_id)

    def on_died(self) -> None:
        self.died += 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a story with a peer whose process says hello and nothing more."""
    (tmp_path / "silent.py").write_text(SILENT)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {os.path.realpath("/proc/self/exe")} {tmp_path}/silent.py "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(evaluations, "END_TIMEOUT_S", 0.1)

    def running(story: Callable[[Peer, Hears], Awaitable[None]]) -> None:
        async def whole() -> None:
            hears = Hears()
            made = Peer(Settings(root=tmp_path), Metrics(), hears)
            try:
                await made.start()
                await story(made, hears)
            finally:
                await made.close()

        asyncio.run(whole())

    return running


def test_a_process_that_does_not_read_keeps_no_submission_waiting(run) -> None:
    async def story(made: Peer, hears: Hears) -> None:
        started = time.monotonic()
        for _ in range(3):  # more than fits a pipe
            made.give(TASK)
        assert time.monotonic() - started < 1.0
        assert (hears.ready, hears.died) == (1, 0)

    run(story)


def test_a_process_that_does_not_answer_is_reported_and_then_replaced(run, monkeypatch) -> None:
    monkeypatch.setattr(peer, "FIRST_HEALTH_S", 0.01)
    monkeypatch.setattr(peer, "SILENT_S", 0.05)

    async def story(made: Peer, hears: Hears) -> None:
        async with asyncio.timeout(20.0):
            while "has not answered for" not in made.state.fault:
                await asyncio.sleep(0.01)
            assert (made.state.ready, hears.died) == (True, 0)
            monkeypatch.setattr(peer, "START_TIMEOUT_S", 0.2)
            while not hears.died:
                await asyncio.sleep(0.01)
            assert f"status {-signal.SIGKILL}" in made.state.fault
            monkeypatch.setattr(peer, "START_TIMEOUT_S", 120.0)
            while hears.ready < 2:
                await asyncio.sleep(0.01)

    run(story)


@pytest.mark.parametrize("lacks", ["a program", "a thread"])
def test_a_process_that_cannot_be_started_is_tried_again(run, monkeypatch, lacks: str) -> None:
    def threadless(*_: object) -> None:
        raise RuntimeError("can't start new thread")  # as Python says it

    async def story(made: Peer, hears: Hears) -> None:
        python, real = sys.executable, evaluations.Evaluations
        if lacks == "a program":
            monkeypatch.setattr(sys, "executable", "/nowhere")
        else:
            monkeypatch.setattr(peer, "Evaluations", threadless)
        process = made._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(20.0):
            while "expected to start" not in made.state.fault:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(sys, "executable", python)
            monkeypatch.setattr(peer, "Evaluations", real)
            while hears.ready < 2:
                await asyncio.sleep(0.01)

    run(story)


def test_a_process_that_has_done_something_is_replaced_at_once(run) -> None:
    async def story(made: Peer, hears: Hears) -> None:
        made._restarts = 10  # after which the next waits for half a minute
        hears.on_done = lambda *_: None  # type: ignore[method-assign]
        made._heard(made._generation, {"op": "done", "id": "a", "seconds": 1.0}, Finished("completed", b"{}", b""))
        process = made._process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        async with asyncio.timeout(20.0):
            while hears.ready < 2:
                await asyncio.sleep(0.01)

    run(story)
