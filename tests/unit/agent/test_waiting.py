"""A conversation that waits for a device: what its end says before and after the kernel is measured."""

from pathlib import Path

import pytest

from ptxbench.agent import RunStore, Skipped
from ptxbench.agent.budget import Budget, Limits
from ptxbench.records import Outcome, TrajectoryEnd, TurnRecord
from tests.unit.agent.talking import Client, Talk, with_kernel


def session(folder: Path, turns: int, *, device: bool) -> Talk:
    """A session that gives each trajectory so many turns."""
    talk = Talk(folder, Client([with_kernel(0)]), turns)
    talk.store = RunStore.open(folder, {}, {talk.model.name: turns})
    talk.profiler.known = device
    return talk


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


def test_a_last_turn_that_nobody_measured_ends_nothing_early(folder: Path) -> None:
    talk = session(folder, 1, device=False)
    assert [record.verdict.outcome for record in talk.records()] == [Outcome.UNKNOWN]
    assert talk.store.load_end(talk.key(0)) is None


def test_an_end_that_waited_for_a_device_is_not_told_of_a_turn_that_was_measured(folder: Path) -> None:
    waiting = session(folder, 3, device=False)
    assert isinstance(waiting.results()[0], TurnRecord)
    end = waiting.store.load_end(waiting.key(0))
    assert end is not None
    assert end.reason == "unmeasured"
    # One turn on a machine with a device that nobody answers on: what is measured is told elsewhere.
    measuring = session(folder, 1, device=True)
    assert [record.verdict.outcome for record in measuring.records()] == [Outcome.CORRECT]
    assert measuring.client.requests == []
    end = measuring.store.load_end(measuring.key(0))
    assert end is not None
    # Turns 1 and 2 of the run were not asked for: they stay out of N.
    assert (end.key.turn, end.reason) == (1, "stopped")
    assert "not measured" not in end.message


def test_an_end_behind_all_turns_of_a_run_goes_when_the_last_one_is_measured(folder: Path) -> None:
    talk = session(folder, 1, device=False)
    talk.records()
    old = TrajectoryEnd(key=talk.key(0).model_copy(update={"turn": 1}), reason="unmeasured", message="of an older run")
    talk.store.save_end(old)
    measuring = session(folder, 1, device=True)
    measuring.records()
    assert measuring.store.load_end(measuring.key(0)) is None


def test_what_waited_is_measured_though_the_budget_is_spent(folder: Path) -> None:
    session(folder, 3, device=False).results()
    measuring = session(folder, 3, device=True)
    measuring.budget = Budget(Limits(tokens=0))
    first, second, third = measuring.results()
    assert isinstance(first, TurnRecord)
    assert first.verdict.outcome is Outcome.CORRECT
    assert isinstance(second, Skipped)
    assert "budget" in second.reason
    assert third == second
    assert measuring.client.requests == []
