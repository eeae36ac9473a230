"""Stored turns are a conversation that was had: what damage, other texts and unstorable answers cannot do to one."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from ptxbench.agent import RunStore
from ptxbench.agent.budget import spent_in
from ptxbench.agent.dialogue import followed
from ptxbench.errors import InfrastructureError
from ptxbench.models import PastTurn
from ptxbench.models.client import ModelError, Request
from ptxbench.packs import Pack, load_pack
from ptxbench.records import Message, Reply, TurnRecord, prompt_sha256
from tests.unit.agent.talking import Client, Talk, kernel, reply, with_kernel
from tests.unit.factories import ROOT

SCRIPT = (with_kernel(0), with_kernel(1), with_kernel(2), with_kernel(3))
OTHER = (with_kernel(0), with_kernel(11), with_kernel(12), with_kernel(13))


def talk_of(folder: Path, script: Any = SCRIPT, turns: int = 4) -> Talk:
    return Talk(folder / "run", Client(script), turns=turns)


def asked(talk: Talk) -> list[int]:
    return [sum(message.role == "assistant" for message in request.messages) for request in talk.client.requests]


def assert_had(records: list[TurnRecord]) -> None:
    """Each turn answers the turns before it, as they are stored."""
    messages: list[Message] = []
    for record in records:
        assert record.exchange is not None
        assert record.exchange.reply is not None
        messages += record.exchange.added
        assert record.exchange.prompt_sha256 == prompt_sha256(messages), record.key
        messages.append(Message(role="assistant", content=record.exchange.reply.text))


def on_disk(talk: Talk) -> list[TurnRecord]:
    return [stored.record for stored in RunStore.read(talk.folder).turns()]


def test_turns_after_one_that_is_asked_anew_are_asked_anew_too(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    before.store.turn_path(before.key(1)).write_text("{")
    again = talk_of(tmp_path, OTHER)
    again.records()
    assert asked(again) == [1, 2, 3]
    assert_had(on_disk(again))
    assert len(list((again.folder / "aside").glob("*turn[123].json.*"))) == 3
    notes = again.store.take_notes()
    assert len(notes) == 3
    assert "answers another conversation" in notes[1]
    assert "a conversation with turn 2, which is not stored" in notes[2]
    # The two whole replies were paid for; what the damaged record cost, nobody can read.
    assert sum(spent.tokens for spent in spent_in(again.store, {}).values()) == 6 * 1100


def test_the_same_answer_again_keeps_what_follows(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    before.store.turn_path(before.key(1)).write_text("{")
    again = talk_of(tmp_path)
    again.records()
    assert asked(again) == [1]
    assert_had(on_disk(again))


def test_a_shorter_session_moves_later_turns_aside_too(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    before.store.turn_path(before.key(1)).write_text("{")
    short = talk_of(tmp_path, OTHER)
    engine = short.engine(short.plan(2))
    engine.turn(short.key(1))
    engine.close()
    assert [record.key.turn for record in on_disk(short)] == [0, 1]


def test_a_turn_whose_predecessor_is_gone_is_asked_anew(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    before.store.turn_path(before.key(1)).unlink()
    refused = talk_of(tmp_path, (SCRIPT[0], ModelError("bad_request", "no"), *OTHER[2:]))
    assert [getattr(found, "key", None) is not None for found in refused.results()] == [True, False, False, False]
    assert [record.key.turn for record in on_disk(refused)] == [0]
    assert any("with turn 1, which is not stored" in note for note in refused.store.take_notes())


def test_an_edited_answer_is_noticed_by_the_turn_after_it(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    path = before.store.turn_path(before.key(1))
    path.write_text(path.read_text().replace("Try this.", "Try that."))
    again = talk_of(tmp_path)
    again.records()
    assert asked(again) == [2, 3]
    assert_had(on_disk(again))


def test_a_turn_that_is_measured_again_in_vain_costs_no_later_answer(tmp_path: Path) -> None:
    before = talk_of(tmp_path)
    before.records()
    path = before.store.turn_path(before.key(1))
    record = before.store.record(before.key(1))
    assert record is not None
    path.write_text(record.model_copy(update={"evidence_origin": "replayed"}).model_dump_json())
    again = talk_of(tmp_path)
    again.profiler.faults = [InfrastructureError("oracle_died", "gone")] * 3
    assert again.results()[1] == "oracle_died"
    assert asked(again) == []
    assert len(on_disk(again)) == 4


def test_a_record_names_the_texts_that_its_conversation_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = talk_of(tmp_path, turns=2)
    records = before.records()
    again = talk_of(tmp_path, turns=4)

    def newer(case: Any) -> Pack:
        return load_pack(ROOT, case.arch.name, "params").model_copy(update={"version": "99"})

    again.conversing._pack = newer
    monkeypatch.setattr("ptxbench.agent.prompt.TEMPLATE_VERSION", "99")
    prompts = {record.exchange.prompt for record in again.records() if record.exchange is not None}
    assert records[0].exchange is not None
    assert prompts == {records[0].exchange.prompt}
    # A conversation that begins now has the new texts.
    fresh = Talk(tmp_path / "fresh", Client(SCRIPT))
    (first, *_) = fresh.records()
    assert first.exchange is not None
    assert first.exchange.prompt.template == "99"


@pytest.mark.parametrize("field", ["text", "reasoning", "source", "finish_reason", "model", "response_id"])
def test_half_a_pair_in_any_field_is_replaced(tmp_path: Path, field: str) -> None:
    values = {"text": SCRIPT[0].text, field: "half \ud800"}
    talk = talk_of(tmp_path, [reply(**values), *SCRIPT[1:]])
    (first, *_) = talk.records()
    assert first.exchange is not None
    assert getattr(first.exchange.reply, field) == "half \ufffd"
    assert on_disk(talk)[0] == first


def test_an_answer_that_cannot_be_stored_costs_its_own_turn_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = talk_of(tmp_path)
    save = talk.store.save_reply

    def refuse_the_second(pending: Any) -> None:
        if pending.key.turn == 1:
            raise ValueError("no form for it")
        save(pending)

    monkeypatch.setattr(talk.store, "save_reply", refuse_the_second)
    results = talk.results()
    assert results[1] == "model_malformed_response"
    assert [isinstance(result, TurnRecord) for result in results] == [True, False, True, True]
    talk.conversing.close()
    fault = talk.store.load_fault(talk.key(1))
    assert fault is not None
    assert fault.fault is not None
    assert "expected a reply that can be stored, found ValueError: no form for it" in fault.fault.message


def test_what_cannot_be_counted_is_stored_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(*values: Any) -> Any:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr("ptxbench.agent.conversation.spent_on", too_large)
    talk = talk_of(tmp_path)
    with pytest.raises(OverflowError):
        talk.results()
    assert [pending.key.turn for pending in talk.store.pending_replies()] == [0]


def test_a_full_disk_keeps_every_reply_that_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(3, timeout=30)

    def all_at_once(request: Request) -> Reply:
        together.wait()
        return SCRIPT[0]

    talk = talk_of(tmp_path, [all_at_once, *SCRIPT[1:]])
    save, full = talk.store.save_reply, {0, 1, 2}

    def save_if_room(pending: Any) -> None:
        if pending.key.trajectory in full:
            raise InfrastructureError("disk_full", "no space")
        save(pending)

    monkeypatch.setattr(talk.store, "save_reply", save_if_room)
    talk.results(trajectories=3, concurrency=3)
    full -= {1, 2}
    with pytest.raises(InfrastructureError, match="no space"):
        talk.conversing.close()
    assert [pending.key.trajectory for pending in talk.store.pending_replies()] == [1, 2]
    full.clear()
    talk.conversing.close()
    assert [pending.key.trajectory for pending in talk.store.pending_replies()] == [0, 1, 2]


def test_a_fault_in_any_characters_is_kept_without_paths_of_the_machine(tmp_path: Path) -> None:
    message = f"\x1b[31mbad \ud800 '{tmp_path}/some file.sock' refused"
    talk = talk_of(tmp_path)
    talk.profiler.faults = [InfrastructureError("reference_failed", message)]
    assert talk.results() == ["reference_failed"] * 4
    fault = RunStore.read(talk.folder).load_fault(talk.key(0))
    assert fault is not None
    assert fault.fault is not None
    assert "\\u001b[31mbad \ufffd 'some file.sock' refused" in fault.fault.message
    assert str(tmp_path) not in talk.store.fault_path(talk.key(0)).read_text()


def test_failed_attempts_name_no_path_and_can_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ptxbench.agent.asking.FIRST_PAUSE_S", 0.0)
    troubles = [ModelError("timeout", f"half \ud800 of {tmp_path}/x.sock")]

    def late(request: Request) -> Reply:
        if troubles:
            raise troubles.pop()
        return SCRIPT[0]

    (record, *_) = talk_of(tmp_path, [late, *SCRIPT[1:]]).records()
    assert record.exchange is not None
    assert [attempt.message for attempt in record.exchange.attempts] == ["half \ufffd of x.sock"]


def test_what_a_replayed_call_followed_is_told_by_its_hash(tmp_path: Path) -> None:
    talk = talk_of(tmp_path)
    records = talk.records()
    history = [PastTurn(record, kernel(number)) for number, record in enumerate(records[:3])]
    for number, record in enumerate(records):
        assert record.exchange is not None
        assert followed(record.exchange, history[:number]) == record.follows
    last = records[3].exchange
    assert last is not None
    assert followed(last.model_copy(update={"prompt_sha256": "0" * 64}), history) == 2
    first = records[0].exchange
    assert first is not None
    assert followed(first, history) is None
