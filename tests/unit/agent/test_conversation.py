"""A language model within the loop: what is said, what is kept, what is never paid for twice."""

import os
from typing import Any

import pytest

from ptxbench.agent import RunStore, Skipped
from ptxbench.agent.budget import Budget, Limits
from ptxbench.agent.feedback import feedback
from ptxbench.agent.prompt import first_messages, identity
from ptxbench.agent.trajectory import RETRIES
from ptxbench.errors import InfrastructureError
from ptxbench.models import PastTurn
from ptxbench.models.client import ModelError, Request
from ptxbench.records import Message, Outcome, PendingReply, Reply, TurnRecord, Usage, prompt_sha256
from tests.unit.agent.parts import FakeProfiler
from tests.unit.agent.talking import Client, Talk, case, kernel, reply, with_kernel

SCRIPT = (with_kernel(0), reply("I cannot."), with_kernel(2))


@pytest.fixture
def talk(tmp_path) -> Talk:
    return Talk(tmp_path / "run", Client(SCRIPT))


def said(talk: Talk, turn: int) -> list[Message]:
    return list(talk.client.requests[turn].messages)


def test_a_conversation_keeps_every_answer_and_its_feedback(talk):
    records = talk.records()
    first = list(first_messages(case(), "none", talk.pack(case())))
    assert said(talk, 0) == first
    past = [PastTurn(record, source) for record, source in zip(records, (kernel(0), None), strict=False)]
    expected = first
    for turn in (0, 1):
        told = feedback(case(), past[turn], turns_left=2 - turn, toolchain=None, history=past[:turn])
        answer = SCRIPT[turn].text
        expected = [*expected, Message(role="assistant", content=answer), Message(role="user", content=told)]
        assert said(talk, turn + 1) == expected
    assert [request.label for request in talk.client.requests] == [str(talk.key(turn)) for turn in range(3)]


def test_the_record_of_a_turn_is_its_whole_call(talk):
    records = talk.records()
    assert [record.verdict.outcome.value for record in records] == ["correct", "extraction_error", "correct"]
    assert [record.origin for record in records] == ["model"] * 3
    assert [record.follows for record in records] == [None, 0, 1]
    messages: list[Message] = []
    for record, answer, request in zip(records, SCRIPT, talk.client.requests, strict=True):
        exchange = record.exchange
        assert exchange is not None
        messages += exchange.added
        assert exchange.prompt_sha256 == prompt_sha256(messages) == prompt_sha256(request.messages)
        assert exchange.reply == answer
        assert exchange.prompt == identity(talk.pack(case()))
        assert exchange.sent == {"provider": "openai", "model": "t-1", "temperature": None}
        messages.append(Message(role="assistant", content=answer.text))
    stored = RunStore.read(talk.folder)
    assert [turn.record for turn in stored.turns()] == records
    assert stored.candidate(talk.key(2)).source == kernel(2)  # type: ignore[union-attr]
    assert not list((talk.folder / "replies").glob("*.json"))


def test_failed_attempts_are_kept(talk, monkeypatch):
    monkeypatch.setattr("ptxbench.agent.asking.FIRST_PAUSE_S", 0.01)
    errors = [ModelError("overloaded", "busy"), ModelError("server_error", "500")]

    def flaky(request: Request) -> Reply:
        if errors:
            raise errors.pop(0)
        return with_kernel(0)

    talk.client.script[0] = flaky
    record = talk.records()[0]
    assert record.exchange is not None
    assert [(attempt.kind, attempt.message) for attempt in record.exchange.attempts] == [
        ("overloaded", "busy"),
        ("server_error", "500"),
    ]


def test_a_resumed_conversation_is_the_one_that_was_held(talk):
    talk.turns = 2
    before = talk.results()
    again = Talk(talk.folder, Client(SCRIPT), turns=3)
    after = again.records()
    assert after[:2] == before
    assert [request.label for request in again.client.requests] == [str(again.key(2))]
    # Feedback that was given when fewer turns were planned stays as it was given.
    exchange = after[1].exchange
    assert exchange is not None
    assert said(again, 0)[3] == exchange.added[0]


def test_a_reply_is_on_disk_before_anything_is_done_with_it(talk):
    kept: list[PendingReply | None] = []
    talk.profiler.on_evaluate = lambda: kept.append(talk.store.load_reply(talk.key(0)))
    talk.turns = 1
    (record,) = talk.results()
    assert isinstance(record, TurnRecord)
    assert kept == [PendingReply(key=talk.key(0), exchange=record.exchange)]  # type: ignore[arg-type]
    assert talk.store.load_reply(talk.key(0)) is None


def test_a_fault_of_the_profiler_pays_for_no_second_call(talk):
    talk.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    first, second, third = talk.results()
    assert first == "oracle_died"
    assert isinstance(second, TurnRecord)
    assert isinstance(third, TurnRecord)
    # The excluded turn is no part of the conversation: the next one asks for the first kernel anew.
    assert said(talk, 1) == said(talk, 0)
    assert (second.follows, third.follows) == (None, 1)
    again = Talk(talk.folder, Client(SCRIPT))
    records = again.records()
    assert again.client.requests == []
    assert records[1:] == [second, third]
    assert records[0].exchange is not None
    assert records[0].exchange.reply == SCRIPT[0]


def test_a_turn_that_was_made_good_later_does_not_enter_the_conversation(talk):
    talk.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    talk.results()
    again = Talk(talk.folder, Client([*SCRIPT, with_kernel(3)]), turns=4)
    last = again.records()[3]
    (request,) = again.client.requests
    assert last.follows == 2
    assert [message.role for message in request.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert request.messages[:4] == talk.client.requests[2].messages


def test_a_reply_to_another_prompt_is_not_used_and_still_counted(talk):
    talk.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    talk.turns = 1
    talk.results()
    again = Talk(talk.folder, Client(SCRIPT), turns=1)
    again.pack = lambda case: Talk.pack(again, case).model_copy(update={"text": "another pack"})  # type: ignore[method-assign]
    again.model._pack = again.pack  # type: ignore[attr-defined]
    (record,) = again.records()
    assert len(again.client.requests) == 1
    (unused,) = again.store.pending_replies()
    assert unused.exchange.prompt_sha256 != record.exchange.prompt_sha256  # type: ignore[union-attr]


def test_a_damaged_reply_is_asked_for_again(talk):
    talk.profiler.faults = [InfrastructureError("oracle_died", "gone")] * (RETRIES + 1)
    talk.turns = 1
    talk.results()
    talk.store.reply_path(talk.key(0)).write_text('{"schema_version": 1, "key"')
    again = Talk(talk.folder, Client(SCRIPT), turns=1)
    assert len(again.records()) == 1
    assert len(again.client.requests) == 1


def test_a_full_context_ends_the_trajectory_and_is_remembered(talk):
    talk.client.script[1] = ModelError("context_exhausted", "9000 tokens, 4096 allowed")
    first, second, third = talk.results()
    assert isinstance(first, TurnRecord)
    assert isinstance(second, Skipped)
    assert second.reason.startswith("the conversation no longer fits the model's context: 9000 tokens")
    assert third == second
    (end,) = talk.store.ends()
    assert (end.reason, end.key, end.message) == ("context_exhausted", talk.key(1), second.reason)
    assert end.exchange is not None
    assert end.exchange.reply is None
    assert end.exchange.prompt_sha256 == prompt_sha256(said(talk, 1))

    again = Talk(talk.folder, Client(SCRIPT))
    assert again.results() == [first, second, second]
    assert again.client.requests == []
    # A model that is served with other settings may have room for it.
    larger = Talk(talk.folder, Client(SCRIPT))
    larger.client.temperature = 1.0
    assert all(isinstance(result, TurnRecord) for result in larger.results())
    assert list(larger.store.ends()) == []


def test_a_target_that_is_reached_is_recorded_as_the_end(talk):
    talk.profiler.baseline_ns = 960_000
    talk.results()
    (end,) = talk.store.ends()
    assert (end.reason, end.key.turn, end.exchange) == ("target_reached", 1, None)


@pytest.mark.parametrize("limits", [Limits(usd=0.0028), Limits(tokens=2200)])
def test_a_spent_budget_stops_calls_and_can_be_raised(talk, limits):
    talk.budget = Budget(limits)
    first, second, third = talk.results()
    assert isinstance(second, TurnRecord)
    assert isinstance(third, Skipped)
    assert third.reason.startswith("the budget in ")
    assert len(talk.client.requests) == 2
    (end,) = talk.store.ends()
    assert (end.reason, end.key) == ("budget", talk.key(2))
    again = Talk(talk.folder, Client(SCRIPT))
    assert again.records()[:2] == [first, second]
    assert len(again.client.requests) == 1
    assert list(again.store.ends()) == []


def test_calls_are_metered(talk):
    talk.records()
    progress = talk.meter.progress()
    assert (progress.calls, progress.tokens) == (3, 3300)
    assert progress.usd == pytest.approx(0.0042)


def test_a_lasting_error_ends_everything_that_needs_the_model(talk):
    talk.turns = 1
    stored = talk.results()
    broken = Talk(talk.folder, Client([ModelError("authentication", "bad key")] * 3))
    found = broken.results(trajectories=3, concurrency=3)
    assert found[:1] == stored
    assert found[1:] == ["model_authentication"] * 8
    assert len(broken.client.requests) <= 3
    faults = sorted((talk.folder / "faults").iterdir())
    assert len(faults) == 8
    fault = broken.store.load_fault(broken.key(2))
    assert fault is not None
    assert fault.verdict.outcome is Outcome.INFRASTRUCTURE_ERROR
    mended = Talk(talk.folder, Client(SCRIPT))
    assert len(mended.records()) == 3
    assert len(list((talk.folder / "faults").iterdir())) == 6


def test_a_model_that_stays_away_costs_the_turn_only(talk, monkeypatch):
    monkeypatch.setattr("ptxbench.agent.asking.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("ptxbench.agent.asking.ATTEMPTS", 2)
    errors = [ModelError("connection", "refused")] * 2

    def flaky(request: Request) -> Reply:
        if errors:
            raise errors.pop(0)
        return with_kernel(0)

    talk.client.script[0] = flaky
    first, second, _ = talk.results()
    assert first == "model_connection"
    assert isinstance(second, TurnRecord)


def test_stopping_gives_up_the_call_and_keeps_the_rest(talk):
    engine = talk.engine(talk.plan(3))
    talk.stop = engine._stop

    def endless(request: Request) -> Reply:
        engine._stop.set()
        assert request.cancelled()
        raise ModelError("cancelled", "given up")

    talk.client.script[1] = endless
    assert isinstance(engine.turn(talk.key(0)), TurnRecord)
    assert engine.turn(talk.key(1)) == Skipped("the run was stopped during this turn", "stopped")
    assert engine.turn(talk.key(2)) == Skipped("the run was stopped during this turn", "stopped")
    engine.close()
    assert not (talk.folder / "faults").exists()
    assert len(Talk(talk.folder, Client(SCRIPT)).records()) == 3


def test_a_turn_that_nobody_measured_waits_for_a_device(talk):
    talk.profiler.known = False
    first, second, third = talk.results()
    assert isinstance(first, TurnRecord)
    assert first.verdict.outcome is Outcome.UNKNOWN
    assert isinstance(second, Skipped)
    assert "there is no feedback that the model could go on with" in second.reason
    assert third == second
    again = Talk(talk.folder, Client(SCRIPT))
    records = again.records()
    assert [len(request.messages) for request in again.client.requests] == [4, 6]
    assert records[0].exchange == first.exchange
    assert records[0].origin == "model"


def test_replayed_evidence_that_is_measured_later_keeps_the_call(talk):
    talk.profiler = FakeProfiler(origin="replayed", device=None)
    before = talk.records()
    again = Talk(talk.folder, Client(SCRIPT))
    after = again.records()
    assert again.client.requests == []
    assert [record.evidence_origin for record in after] == ["measured", "none", "measured"]
    assert [record.exchange for record in after] == [record.exchange for record in before]
    assert [record.follows for record in after] == [None, 0, 1]


def test_a_full_disk_stops_paying_and_the_reply_is_stored_when_there_is_room(talk, monkeypatch):
    save, full = talk.store.save_reply, [True]

    def save_if_room(pending: PendingReply) -> None:
        if full[0]:
            raise InfrastructureError("disk_full", "no space")
        save(pending)

    monkeypatch.setattr(talk.store, "save_reply", save_if_room)
    assert talk.results(trajectories=3) == ["disk_full"] * 9
    assert len(talk.client.requests) == 1
    full[0] = False
    talk.model.close()
    assert talk.client.closed
    again = Talk(talk.folder, Client(SCRIPT))
    assert len(again.records()) == 3
    assert len(again.client.requests) == 2


def test_what_no_file_can_hold_is_replaced(talk):
    source = kernel(0).replace("small<<<", "/* \ud83d */ small<<<")
    talk.client.script[0] = reply(f"```cuda\n{source}```", reasoning="half \udc00 a pair", source=None)
    record = talk.records()[0]
    assert record.exchange is not None
    assert record.exchange.reply is not None
    assert "/* \ufffd */" in record.exchange.reply.text
    assert record.exchange.reply.reasoning == "half \ufffd a pair"
    assert RunStore.read(talk.folder).record(talk.key(0)) == record


def test_a_kernel_that_was_handed_over_as_a_file_is_told_as_one(talk):
    talk.client.script[0] = reply("", source=kernel(7))
    records = talk.records()
    assert records[0].verdict.correct
    assert said(talk, 1)[2] == Message(role="assistant", content=f"```cuda\n{kernel(7).rstrip()}\n```")


def test_an_empty_answer_is_told_as_one(talk):
    talk.client.script[0] = reply("", reasoning="long thoughts", ended="output_limit", finish_reason="length")
    records = talk.records()
    assert records[0].verdict.outcome is Outcome.EXTRACTION_ERROR
    assert said(talk, 1)[2] == Message(role="assistant", content="(no answer)")


def test_an_earlier_turn_from_elsewhere_does_not_break_the_conversation(talk):
    talk.turns = 1
    (first,) = talk.records()
    foreign = first.model_copy(update={"exchange": None, "origin": "file"})
    model: Any = talk.model
    talk.client.script = [with_kernel(0), with_kernel(1)]
    found = model.propose(case(), 0, 0, 1, [PastTurn(foreign, kernel(0))])
    assert found.candidate.source == kernel(1)
    assert [message.role for message in said(talk, 1)] == ["system", "user", "assistant", "user"]
    assert kernel(0).rstrip() in said(talk, 1)[2].content


def test_a_record_that_follows_itself_does_not_loop(talk):
    records = talk.records()
    twisted = [records[0].model_copy(update={"follows": 5}), records[1].model_copy(update={"follows": 1})]
    model: Any = talk.model
    model.propose(case(), 0, 9, 2, [PastTurn(record, None) for record in twisted])
    assert [message.role for message in said(talk, 3)] == ["user", "assistant", "user"]


def test_uncounted_tokens_are_estimated_for_the_budget(talk):
    talk.client.script[0] = reply("x" * 40, usage=Usage(), cost_usd=None, cost_source="unknown")
    talk.budget = Budget(Limits(tokens=100))
    first, second, _ = talk.results()
    assert isinstance(first, TurnRecord)
    assert isinstance(second, Skipped)
    progress = talk.meter.progress()
    assert progress.tokens > 1000
    assert progress.usd > 0.001


def test_nothing_is_connected_before_a_turn_is_asked_for(talk, monkeypatch):
    monkeypatch.setattr(talk, "connect", lambda: pytest.fail("connected"))
    engine = talk.engine(talk.plan(3))
    engine.close()
    talk.model.close()
    assert talk.model.turns is None
    assert talk.model.min_speedup(case()) is None
    assert talk.model.known_source(case(), 0, 0, 0) is None


def test_records_hold_no_path_of_the_machine(talk):
    talk.records()
    for path in talk.folder.rglob("*"):
        if path.is_file():
            assert os.fsencode(talk.folder.parent) not in path.read_bytes(), path
