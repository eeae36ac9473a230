"""The trusted worker's life, with a stand-in for the program that needs a device and the libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler.qualification import MAX_REDRAWS, Baselines
from ptxbench.profiler.worker import Command, Worker
from tests.unit.factories import make_call, make_comparison
from tests.unit.profiler.stand_in import CONNECT, READY, write_program

# A baseline worker: takes jobs until it is told to quit, and keeps what it was told.
SERVING = """\
log = open("log", "a")
while True:
    job = json.loads(hear())
    print(job.get("op", "job"), file=log, flush=True)
    if job.get("op") == "quit":
        break
    if job.get("op") == "forget":
        continue
    say(b"o")
    while True:
        message = hear()
        if message == b"c":
            say(b"o")
        elif json.loads(message)["op"] in ("publish", "collect"):
            say(b"{}")
        else:
            print(json.loads(message)["op"], file=log, flush=True)
            break
"""


class StandInState:
    """What ``Baselines`` asks of a workload state; ``checks`` are the results of its comparisons in turn."""

    def __init__(self, handle: str = "a", checks: list[Any] | None = None, draws: int = 1) -> None:
        self.arena = SimpleNamespace(handle=handle, describe=list)
        self.case: Any = SimpleNamespace(
            name="case", causal=False, baseline=SimpleNamespace(call="torch.matmul", library="cublas")
        )
        self.checked: list[Any] = [None] * draws
        self._checks = checks or []
        self.replaced: list[int] = []

    def stage(self, draw: object) -> None:
        """Nothing to stage."""

    def replace_draw(self, index: int) -> None:
        self.replaced.append(index)

    def compare(self, draw: object, iteration: int, *, share: float) -> Any:
        assert share < 1
        return self._checks.pop(0)


class Started:
    """Workers in the order in which they were started."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self.workers: list[Worker] = []

    def __call__(self) -> Worker:
        self.workers.append(Worker(Command([sys.executable, str(self._program)])))
        return self.workers[-1]

    def log(self, index: int) -> list[str]:
        return (self.workers[index].folder / "log").read_text().split()


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return Started(write_program(tmp_path, CONNECT + READY + SERVING))


GOOD = make_call()
BAD = make_call(outputs=(make_comparison(mismatched=1),))


def test_a_state_is_bound_once_and_released_for_another(started: Started) -> None:
    baselines = Baselines(started)
    first: Any = StandInState("a")
    second: Any = StandInState("b")
    assert baselines.bind(first) is baselines.bind(first)
    baselines.bind(second)
    baselines.forget(first)
    baselines.bind(second)
    assert started.log(0) == ["job", "release", "job", "release", "forget", "job"]
    baselines.close()


def test_a_state_that_was_never_bound_is_nothing_to_forget(started: Started) -> None:
    baselines = Baselines(started)
    unbound: Any = StandInState("never")
    baselines.forget(unbound)
    bound: Any = StandInState("a")
    baselines.bind(bound)
    assert started.log(0) == ["job"]
    assert len(started.workers) == 1
    baselines.close()


def test_a_worker_that_died_is_replaced(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState("a")
    baselines.bind(state).kill()
    with pytest.raises(InfrastructureError, match=r"case: torch\.matmul failed") as caught:
        baselines.qualify(state)
    assert caught.value.kind == "baseline_unavailable"
    baselines.forget(state)
    baselines.bind(state)
    assert len(started.workers) == 2
    assert started.log(1) == ["job"]
    baselines.close()


def test_a_draw_that_the_library_cannot_compute_is_replaced(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[GOOD, BAD, BAD, GOOD, GOOD], draws=3)
    assert baselines.qualify(state) is GOOD
    assert state.replaced == [1, 1]
    baselines.close()


def test_a_reference_that_the_library_never_meets_is_named(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[BAD] * (MAX_REDRAWS + 1))
    with pytest.raises(InfrastructureError, match=r"disagree on draw after draw .*C: 1 of") as caught:
        baselines.qualify(state)
    assert caught.value.kind == "reference_failed"
    assert len(state.replaced) == MAX_REDRAWS
    baselines.close()
