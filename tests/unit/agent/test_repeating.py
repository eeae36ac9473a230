"""Gaps of a run that is repeated: lost turns are no ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.repeating import TURN_MISSING, RepeatedRun
from ptxbench.errors import InfrastructureError
from ptxbench.models import End, Proposal
from ptxbench.models.replay import ReplayModel
from ptxbench.records import Candidate
from tests.unit.factories import make_record, suite_case

CANDIDATE = Candidate(source="// kernel\n")


@pytest.fixture
def run(tmp_path: Path) -> RepeatedRun:
    store = RunStore.open(tmp_path / "talk", {})
    for turn in range(4):
        store.save(make_record(turn, source_sha256=CANDIDATE.sha256), CANDIDATE)
    return RepeatedRun.read(store.folder)


@pytest.mark.parametrize("lost", [0, 2])
def test_a_turn_before_others_that_is_gone_is_a_fault(run: RepeatedRun, lost: int) -> None:
    run.turn_path(make_record(lost).key).unlink()
    model = ReplayModel(run)
    found = rf"expected turn {lost} of .* in the run talk, found none, though turn {lost + 1} is there"
    with pytest.raises(InfrastructureError, match=found) as error:
        model.propose(suite_case(), 0, 0, lost, ())
    assert error.value.kind == TURN_MISSING
    assert isinstance(model.propose(suite_case(), 0, 0, lost + 1, ()), Proposal)


def test_a_damaged_turn_is_a_fault_even_as_the_last(run: RepeatedRun) -> None:
    run.turn_path(make_record(3).key).write_text("{")
    with pytest.raises(InfrastructureError, match="found a damaged record"):
        ReplayModel(run).propose(suite_case(), 0, 0, 3, ())


def test_beyond_the_last_turn_there_is_none(run: RepeatedRun) -> None:
    assert isinstance(ReplayModel(run).propose(suite_case(), 0, 0, 4, ()), End)
    assert run.load_fault(make_record(3).key) is None
