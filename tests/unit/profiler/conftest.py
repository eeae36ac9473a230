import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxbench.profiler.worker import Command, Worker
from tests.unit.profiler.stand_in import Start, write_program


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers that run stand-in programs, and ends them with the test."""
    programs = tmp_path / "programs"
    programs.mkdir()
    started: list[Worker] = []

    def start_program(body: str, *, by_path: bool = False) -> Worker:
        worker = Worker(Command([sys.executable, str(write_program(programs, body))], by_path=by_path))
        started.append(worker)
        return worker

    yield start_program
    for worker in started:
        worker.close()
