"""The trusted worker's life, with a stand-in for the program that needs a device and the libraries."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ptxbench.errors import InfrastructureError
from ptxbench.profiler import qualification
from ptxbench.profiler.qualification import MAX_REDRAWS, Baselines
from ptxbench.profiler.replies import WorkerError
from ptxbench.profiler.worker import Command, Worker
from ptxbench.records import RunStatus
from tests.unit.factories import make_call, make_comparison
from tests.unit.profiler.stand_in import CONNECT, READY, write_program

# A baseline worker: takes jobs until it is told to quit, and keeps what it was told.
SERVING = """\
plan = lambda: b'{"detail": "in full"}'
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
        elif json.loads(message)["op"] == "plan":
            print("plan", file=log, flush=True)
            say(plan())
        else:
            print(json.loads(message)["op"], file=log, flush=True)
            break
"""


def draw_of(family: str) -> Any:
    return SimpleNamespace(draw=SimpleNamespace(family=family))


class StandInState:
    """What ``Baselines`` asks of a workload state; ``checks`` are the results of its comparisons in turn."""

    def __init__(
        self, handle: str = "a", checks: list[Any] | None = None, draws: int = 1, call: str = "torch.matmul"
    ) -> None:
        self.armed = 0
        self.arena = SimpleNamespace(handle=handle, describe=list, arm=self._arm)
        self.case: Any = SimpleNamespace(
            name="case", causal=False, baseline=SimpleNamespace(call=call, library="library"), scalars=dict
        )
        self.checked: list[Any] = [draw_of("normal")] * draws
        self.families: list[Any] = [draw_of(family) for family in ("shifted", "structure")]
        self._checks = checks or []
        self.replaced: list[int] = []

    def stage(self, draw: object) -> None:
        """Nothing to stage."""

    def _arm(self) -> None:
        self.armed += 1

    def replace_draw(self, index: int) -> None:
        self.replaced.append(index)

    def compare(self, draw: Any, iteration: int, *, share: float = 1.0) -> Any:
        # The library has to be better than a candidate on official draws, and is only measured on others.
        assert (share < 1) == (draw.draw.family == "normal")
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
        return (self.workers[index].work / "log").read_text().split()


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return Started(write_program(tmp_path, CONNECT + READY + SERVING))


RAGGED = "BatchPrefillWithRaggedKVCacheWrapper"
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


def test_a_guard_that_the_last_candidate_broke_does_not_count_against_the_library(started: Started) -> None:
    """It would be ``reference_failed`` for whoever comes next, and for a device that has to qualify a quarantine."""
    baselines = Baselines(started)
    state: Any = StandInState()
    state.compare = lambda *_, **__: GOOD.model_copy(update={"guards_intact": state.armed > 0})
    assert baselines.qualify(state).guards_intact
    assert state.replaced == []
    baselines.close()


def test_a_reference_that_the_library_never_meets_is_named(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[BAD] * (MAX_REDRAWS + 1))
    with pytest.raises(InfrastructureError, match=r"disagree on draw after draw .*C: 1 of") as caught:
        baselines.qualify(state)
    assert caught.value.kind == "reference_failed"
    assert len(state.replaced) == MAX_REDRAWS
    baselines.close()


def test_a_library_that_plans_is_planned_once_for_each_family(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[GOOD] * 6, draws=3, call=RAGGED)
    baselines.qualify(state)
    assert started.log(0) == ["job", "plan"]
    assert set(baselines._family_errors(state)[0]) == {"shifted", "structure"}
    assert started.log(0) == ["job", "plan", "plan", "plan"]
    baselines.close()


def test_a_library_is_planned_for_the_official_family_again_before_it_is_timed(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[list[str]] = []

    def timed(*_: object) -> tuple[list[int], list[Any]]:
        log.append(started.log(0))
        raise WorkerError(RunStatus.RUNTIME_ERROR, "enough")

    monkeypatch.setattr(qualification, "timed_loop", timed)
    baselines = Baselines(started)
    state: Any = StandInState(checks=[GOOD] * 3, draws=1, call=RAGGED)
    baselines._family_errors(state)
    with pytest.raises(InfrastructureError, match="enough"):
        baselines.time(state, 1, 1)
    assert log == [["job", "plan", "plan", "plan"]]
    baselines.close()


def test_a_library_that_does_not_plan_is_never_asked_to(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[GOOD] * 3)
    baselines.qualify(state)
    baselines._family_errors(state)
    assert started.log(0) == ["job"]
    baselines.close()


def test_a_plan_that_fails_is_the_librarys_failure(tmp_path: Path) -> None:
    refusing = SERVING.replace('"detail": "in full"', '"error": "planning: no compiler", "code": 0')
    started = Started(write_program(tmp_path, CONNECT + READY + refusing))
    baselines = Baselines(started)
    state: Any = StandInState(checks=[GOOD], call=RAGGED)
    with pytest.raises(InfrastructureError, match="planning: no compiler") as caught:
        baselines.qualify(state)
    assert caught.value.kind == "baseline_unavailable"
    baselines.close()


def test_a_family_in_which_the_library_fails_is_known_as_such(tmp_path: Path) -> None:
    dying = SERVING.replace("plan = lambda", "plan = lambda: sys.exit(1) if True else lambda")
    started = Started(write_program(tmp_path, CONNECT + READY + dying))
    baselines = Baselines(started)
    state: Any = StandInState(call=RAGGED)
    assert baselines._family_errors(state) == ({"shifted": {}, "structure": {}},) * 2
    baselines.close()


def test_a_family_in_which_the_librarys_values_are_not_finite_measures_nothing(started: Started) -> None:
    baselines = Baselines(started)
    infinite = make_call(outputs=(make_comparison(nan=1, mismatched=1),))
    state: Any = StandInState(checks=[GOOD, infinite])
    errors, _ = baselines._family_errors(state)
    assert errors == {"shifted": {"C": pytest.approx(0.002)}, "structure": {"C": math.inf}}
    baselines.close()


def test_the_librarys_worst_blocks_are_known_where_they_were_measured(started: Started) -> None:
    baselines = Baselines(started)
    state: Any = StandInState(checks=[make_call(outputs=(make_comparison(worst_block_rms=0.004),)), GOOD])
    assert baselines._family_errors(state)[1] == {"shifted": {"C": 0.004}, "structure": {}}
    baselines.close()
