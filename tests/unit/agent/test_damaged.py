"""Damaged turns as faults of the machinery: which turn it was, by the file's path."""

from pathlib import Path

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.damaged import KIND, damaged_records
from ptxbench.agent.turn_files import DamagedTurn
from ptxbench.records import Candidate, Outcome, TurnRecord
from tests.unit.factories import make_record


def damaged(folder: Path, trajectory: str, name: str = "turn3.json") -> DamagedTurn:
    return DamagedTurn(folder / "turns" / trajectory / name, "not whole")


def found(tmp_path: Path, turn: DamagedTurn, *others: TurnRecord, models: tuple[str, ...] = ()) -> list[TurnRecord]:
    run = RunStore.open(tmp_path / "run", {}, dict.fromkeys(models, 8))
    return list(damaged_records(run, [turn], others))


def test_the_path_says_which_turn_it_was(tmp_path: Path) -> None:
    turn = damaged(tmp_path, "claude-x-gemm_n7168-k5120-h100-v2-t11")
    (record,) = found(tmp_path, turn, models=("claude", "claude-x"))
    key = record.key
    assert (key.model, key.case, key.arch) == ("claude-x", "gemm_n7168-k5120", "h100")
    assert (key.variant, key.trajectory, key.turn) == (2, 11, 3)
    assert record.verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    assert record.fault is not None
    assert (record.fault.kind, record.fault.message) == (KIND, "turn3.json: not whole")


def test_models_of_whole_records_are_known_too(tmp_path: Path) -> None:
    whole = make_record(0)
    (record,) = found(tmp_path, damaged(tmp_path, whole.key.trajectory_id), whole)
    assert record.key == whole.key.model_copy(update={"turn": 3})


@pytest.mark.parametrize(
    ("trajectory", "name"),
    [
        ("other-gemm-h100-v0-t0", "turn3.json"),
        ("claude-h100-v0-t0", "turn3.json"),
        ("claude-gemm-h100-v0", "turn3.json"),
        ("claude-gemm-h100-v0-t0", "turnx.json"),
    ],
)
def test_where_the_path_does_not_say_there_is_no_record(tmp_path: Path, trajectory: str, name: str) -> None:
    assert found(tmp_path, damaged(tmp_path, trajectory, name), models=("claude",)) == []


def test_a_turn_that_is_told_already_is_not_told_twice(tmp_path: Path) -> None:
    whole = make_record(3)
    assert found(tmp_path, damaged(tmp_path, whole.key.trajectory_id), whole) == []


def test_a_turn_that_was_copied_to_another_place_counts_once(tmp_path: Path) -> None:
    store, candidate = RunStore.open(tmp_path / "run", {}), Candidate(source="int x;")
    here, next_turn = (make_record(turn, source_sha256=candidate.sha256) for turn in (0, 1))
    elsewhere = make_record(0, trajectory=1, source_sha256=candidate.sha256)
    store.save(here, candidate)
    path = store.turn_path(here.key)
    for other in (next_turn, elsewhere):
        copy = store.turn_path(other.key)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
        copy.with_suffix(".cu").write_bytes(path.with_suffix(".cu").read_bytes())
    assert [stored.record.key for stored in store.turns()] == [here.key]
    moved = [entry for entry in store.entries() if isinstance(entry, DamagedTurn)]
    assert [entry.reason for entry in moved] == [f"it is the record of {here.key}"] * 2
    assert (store.record(next_turn.key), store.later(here.key)) == (None, [])
