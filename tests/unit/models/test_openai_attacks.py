"""``openai`` against servers that mean harm."""

import gzip
import json
import time
from typing import Any

import pytest

from ptxbench.models import openai_client
from ptxbench.models.client import ModelError
from ptxbench.models.entry import Prices
from ptxbench.records import Reply, Usage
from tests.support.llm_script import Failure, Raw, Step, kernel
from tests.support.llm_server import LlmServer
from tests.unit.models.parts import KEY, client, openai_entry, refusal, request


def body(**changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "no kernel"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return {"id": "x", "model": "m", "choices": [choice], "usage": usage} | changes


def stream(*pieces: dict[str, Any]) -> Raw:
    return Raw(tuple(f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces))


def asked(step: Step, **fields: Any) -> Reply:
    with LlmServer(step) as server:
        found = client(openai_entry(server.url, **fields))
        reply = found.complete(request())
        found.close()
    return reply


def refused(step: Step, **fields: Any) -> ModelError:
    with LlmServer(step) as server:
        found = client(openai_entry(server.url, **fields))
        error = refusal(found)
        found.close()
    return error


@pytest.mark.parametrize("field", ["model", "id", "content", "reasoning", "finish_reason", "usage"])
def test_half_a_surrogate_pair_loses_no_reply(field):
    message = {"content": "c", "reasoning": "r"}
    changes: dict[str, Any] = {
        "model": {"model": "\ud800"},
        "id": {"id": "\ud800"},
        "content": {"choices": [{"message": message | {"content": "\ud800"}, "finish_reason": "stop"}]},
        "reasoning": {"choices": [{"message": message | {"reasoning": "\ud800"}, "finish_reason": "stop"}]},
        "finish_reason": {"choices": [{"message": message, "finish_reason": "\ud800"}]},
        "usage": {"usage": {"\ud800": 1, "prompt_tokens": 10}},
    }
    reply = asked(Failure(200, body(**changes[field])))
    assert ("\ufffd" in repr(reply)) is (field != "usage")
    assert Reply.model_validate_json(reply.model_dump_json()) == reply


def test_an_error_speaks_to_no_terminal():
    error = refused(Failure(400, {"error": {"message": "bad \ud800 \x1b]0;title\x07 thing"}}))
    assert str(error).endswith("HTTP 400: bad \ufffd \ufffd]0;title\ufffd thing")


@pytest.mark.parametrize("usage", [{"prompt_tokens": -9, "completion_tokens": -9, "cost": -1}, {"cost": 1e308}])
def test_no_reply_earns_money(usage):
    reply = asked(Failure(200, body(usage=usage)), prices=Prices(input=1, output=1))
    assert (reply.usage, reply.cost_usd) == (Usage(), None)


def test_a_count_beyond_floats_is_not_told():
    text = json.dumps(body()).replace('"prompt_tokens": 10', f'"prompt_tokens": 1{"0" * 400}')
    reply = asked(Failure(200, text.encode()), prices=Prices(input=1, output=1))
    assert (reply.usage, reply.cost_usd) == (Usage(output_tokens=5), None)


def test_a_key_that_a_server_echoes_is_kept_nowhere(monkeypatch):
    monkeypatch.setenv("LOCAL_KEY", KEY)
    message = {"content": f"You sent Bearer {KEY}", "reasoning_content": KEY}
    echo = body(id=KEY, model=KEY, choices=[{"message": message, "finish_reason": KEY}])
    reply = asked(Failure(200, echo), api_key_env="LOCAL_KEY")
    assert KEY not in repr(reply)
    assert reply.text == "You sent Bearer [hidden]"
    pieces = [{"choices": [{"delta": {"content": part}}]} for part in (KEY[:9], KEY[9:])]
    reply = asked(stream(*pieces, {"choices": [{"finish_reason": "stop"}]}), api_key_env="LOCAL_KEY")
    assert reply.text == "[hidden]"


def test_of_several_choices_the_first_counts():
    pieces = [
        {"choices": [{"index": 1, "delta": {"content": "SECOND"}}]},
        {"choices": [{"index": 0, "delta": {"content": "fi"}}, {"index": 1, "delta": {"content": "SECOND"}}]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {"content": "rst"}, "finish_reason": "stop"}]},
    ]
    reply = asked(stream(*pieces))
    assert (reply.text, reply.finish_reason) == ("first", "stop")


def test_a_body_that_is_compressed_is_not_unpacked():
    twice = gzip.compress(gzip.compress(b"x" * 10_000_000))
    error = refused(Failure(200, twice, {"Content-Encoding": "gzip, gzip"}))
    assert error.kind == "malformed_response"
    assert "expected a body that is not compressed, as was asked for, found 'gzip, gzip'" in str(error)
    # The status of an error says enough.
    assert refused(Failure(401, twice, {"Content-Encoding": "gzip, gzip"})).kind == "authentication"
    with LlmServer(kernel()) as server:
        found = client(openai_entry(server.url))
        found.complete(request())
        found.close()
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_a_line_without_end_is_bounded(monkeypatch):
    monkeypatch.setattr(openai_client, "MAX_LINE_BYTES", 100_000)
    error = refused(Raw(tuple(b"x" * 9_000 for _ in range(12))))
    assert error.kind == "malformed_response"
    assert "expected lines of at most 100000 bytes, found a longer one" in str(error)


def test_a_long_line_in_many_pieces_takes_no_time():
    text = "x" * 6_000_000
    line = f"data: {json.dumps({'choices': [{'delta': {'content': text}, 'finish_reason': 'stop'}]})}\n\n".encode()
    chunks = tuple(line[at : at + 400] for at in range(0, len(line), 400))
    started = time.monotonic()
    assert asked(Raw(chunks)).text == text
    assert time.monotonic() - started < 15
