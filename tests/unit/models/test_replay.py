"""``replay:RUN``, on a run folder as the agent writes it."""

from typing import Any

import pytest

from ptxbench.agent import RunStore
from ptxbench.errors import InfrastructureError, InputError
from ptxbench.models.base import End, Proposal
from ptxbench.models.replay import ReplayModel
from ptxbench.records import Candidate, Exchange, InfrastructureFault, PromptIdentity, Reply, TrajectoryEnd
from ptxbench.verdict import judge_extraction_error, judge_infrastructure
from tests.unit.factories import make_record, suite_case


def save(store: RunStore, turn: int, source: str | None, model: str = "claude", trajectory: int = 0) -> None:
    candidate = None if source is None else Candidate(source=source)
    changes: dict[str, Any] = {"source_sha256": candidate.sha256 if candidate else None}
    if candidate is None:
        changes |= {"build": None, "evidence": None, "verdict": judge_extraction_error("no code block")}
    store.save(make_record(turn, model=model, trajectory=trajectory, **changes), candidate)


@pytest.fixture
def store(tmp_path) -> RunStore:
    return RunStore.open(tmp_path / "monday", {})


def test_proposes_turn_by_turn_what_was_proposed(store):
    save(store, 0, "zero")
    save(store, 1, None)
    save(store, 2, "two")
    model = ReplayModel(RunStore.read(store.folder))
    assert (model.name, model.turns) == ("replay.monday", 3)
    proposals = [model.propose(suite_case(), 0, 0, turn, ()) for turn in range(4)]
    assert proposals[0] == Proposal(candidate=Candidate(source="zero"), origin="replay")
    assert isinstance(proposals[1], Proposal)
    assert proposals[1].candidate is None
    assert proposals[1].extraction_error
    assert proposals[2] == Proposal(candidate=Candidate(source="two"), origin="replay")
    assert isinstance(proposals[3], End)
    assert model.known_source(suite_case(), 0, 0, 2) == Candidate(source="two").sha256
    assert model.known_source(suite_case(), 0, 0, 3) is None


def test_ends_where_the_run_has_no_such_turn(store):
    save(store, 0, "zero")
    model = ReplayModel(store)
    assert isinstance(model.propose(suite_case(), 1, 0, 0, ()), End)
    assert isinstance(model.propose(suite_case(), 0, 1, 0, ()), End)
    assert isinstance(model.propose(suite_case("mha_bwd_d128"), 0, 0, 0, ()), End)


def test_wants_a_name_where_the_run_has_several_models(store):
    save(store, 0, "hers", model="claude")
    save(store, 0, "his", model="hal-9000")
    with pytest.raises(InputError, match=r"expected turns of one model, found claude, hal-9000; name one"):
        ReplayModel(store)
    model = ReplayModel(store, "hal-9000")
    assert model.name == "replay.monday.hal-9000"
    assert model.propose(suite_case(), 0, 0, 0, ()) == Proposal(candidate=Candidate(source="his"), origin="replay")
    with pytest.raises(InputError, match=r"expected turns of the model 'gpt', found claude, hal-9000"):
        ReplayModel(store, "gpt")


def test_refuses_an_empty_run(store):
    with pytest.raises(InputError, match=r"found no turn at all"):
        ReplayModel(store)


def exchange(text: str) -> Exchange:
    identity = PromptIdentity(template="1", pack="p 1", pack_sha256="a" * 64, level="full")
    reply = Reply(text=text, ended="stop", finish_reason="stop", latency_s=1.0, model="m")
    return Exchange(added=(), prompt_sha256="b" * 64, prompt=identity, asked_at="2026-11-29", reply=reply)


def test_the_call_and_the_reason_come_along(store):
    candidate = Candidate(source="zero")
    record = make_record(0, model="claude", source_sha256=candidate.sha256, exchange=exchange("zero"))
    store.save(record, candidate)
    verdict = judge_extraction_error("only prose was found")
    changes: dict[str, Any] = {"build": None, "evidence": None, "source_sha256": None, "exchange": exchange("prose")}
    store.save(make_record(1, model="claude", verdict=verdict, **changes), None)
    model = ReplayModel(store)
    first, second = (model.propose(suite_case(), 0, 0, turn, ()) for turn in range(2))
    assert first == Proposal(candidate=candidate, origin="replay", exchange=exchange("zero"))
    assert second == Proposal(
        candidate=None, extraction_error="only prose was found", origin="replay", exchange=exchange("prose")
    )


def test_it_has_as_many_turns_as_the_trajectories_were_given(tmp_path):
    store = RunStore.open(tmp_path / "monday", {}, {"claude": 8})
    save(store, 0, "zero")
    assert ReplayModel(store).turns == 8


@pytest.mark.parametrize("reason", ["context_exhausted", "budget"])
def test_it_ends_as_the_trajectory_ended(store, reason):
    save(store, 0, "zero")
    key = make_record(1, model="claude").key
    call = exchange("").model_copy(update={"reply": None})
    store.save_end(TrajectoryEnd(key=key, reason=reason, message="why", exchange=call))
    model = ReplayModel(store)
    assert model.propose(suite_case(), 0, 0, 1, ()) == End(message="why", reason=reason, exchange=call)
    assert model.propose(suite_case(), 0, 0, 2, ()) == End(message="the model has no further turn (asked for turn 2)")


def test_a_turn_that_was_excluded_stays_excluded_and_the_rest_goes_on(store):
    save(store, 0, "zero")
    save(store, 2, "two")
    fault = InfrastructureFault(kind="oracle_died", message="gone")
    verdict = judge_infrastructure(fault)
    store.save_fault(make_record(1, model="claude", build=None, evidence=None, fault=fault, verdict=verdict))
    model = ReplayModel(store)
    with pytest.raises(InfrastructureError, match="as recorded: gone") as found:
        model.propose(suite_case(), 0, 0, 1, ())
    assert found.value.kind == "oracle_died"
    assert isinstance(model.propose(suite_case(), 0, 0, 2, ()), Proposal)
