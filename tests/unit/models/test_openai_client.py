"""``openai``, against a real server on this machine."""

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.models.client import CANCELLED, ModelError
from ptxbench.models.entry import Prices
from ptxbench.records import Message, Reply, Usage
from tests.support.llm_script import (
    CONTEXT_STYLES,
    Answer,
    Drop,
    Failure,
    Hang,
    Raw,
    Step,
    context_length,
    cut_off,
    kernel,
    malformed,
    overloaded,
    quota_used_up,
    rate_limited,
    server_error,
    unauthorized,
)
from tests.support.llm_server import LlmServer, Script
from tests.unit.models.parts import KEY, SYSTEM, USER, client, openai_entry, refusal, request

BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


def asked(script: Script, **fields: Any) -> tuple[Reply, LlmServer]:
    with LlmServer(script) as server:
        found = client(openai_entry(server.url, **fields))
        try:
            return found.complete(request()), server
        finally:
            found.close()


def refused(step: Step, **fields: Any) -> ModelError:
    with LlmServer(step) as server:
        found = client(openai_entry(server.url, **fields))
        try:
            return refusal(found)
        finally:
            found.close()


@BOTH_WAYS
def test_an_answer_with_all_that_belongs_to_it(stream):
    text = "Ünïcode \u2028 and\r\nlines\n```cuda\n// kernel\n```\n"
    step = Answer(
        text, "thinking\u2029", cached_tokens=900, output_tokens=200, reasoning_tokens=150, pieces=7, model="m-0611"
    )
    reply, server = asked(step, stream=stream, prices=Prices(input=1, cached_input=0.1, output=10))
    assert (reply.text, reply.reasoning) == (text, "thinking\u2029")
    assert (reply.ended, reply.finish_reason, reply.model, reply.response_id) == (
        "stop",
        "stop",
        "m-0611",
        "chatcmpl-1",
    )
    assert reply.usage == Usage(input_tokens=1000, cached_input_tokens=900, output_tokens=200, reasoning_tokens=150)
    assert reply.cost_usd == pytest.approx((100 * 1 + 900 * 0.1 + 200 * 10) / 1e6)
    assert reply.cost_source == "models_file"
    assert reply.source is None
    assert 0 < reply.latency_s < 30
    assert server.seen[0].messages == [("system", SYSTEM.content), ("user", USER.content)]


@BOTH_WAYS
def test_exactly_the_settings_are_sent(stream):
    fields: dict[str, Any] = {
        "stream": stream,
        "max_output_tokens": 5000,
        "top_k": 20,
        "thinking": {"chat_template_kwargs": {"enable_thinking": True}},
        "extra": {"seed": 3},
    }
    _, server = asked(kernel(), **fields)
    with LlmServer(kernel()) as other:
        settings = dict(client(openai_entry(other.url, **fields)).settings())
        assert settings.pop("provider") == "openai"
        assert settings.pop("api_base") == other.url
    body = dict(server.seen[0].body)
    assert [message["role"] for message in body.pop("messages")] == ["system", "user"]
    assert body == settings
    assert body["max_tokens"] == 5000
    assert "temperature" not in body
    assert body.get("stream_options") == ({"include_usage": True} if stream else None)


def test_without_settings_the_server_decides():
    _, server = asked(kernel(), stream=False)
    assert set(server.seen[0].body) == {"model", "messages", "stream"}
    assert server.seen[0].key == ""


@BOTH_WAYS
@pytest.mark.parametrize("style", CONTEXT_STYLES)
def test_a_full_context(style, stream):
    assert refused(context_length(style), stream=stream).kind == "context_exhausted"


@pytest.mark.parametrize(
    ("step", "kind", "retry_after_s"),
    [
        (rate_limited("2"), "rate_limited", 2.0),
        (rate_limited("2", retry_after_ms="1500"), "rate_limited", 1.5),
        (rate_limited(None), "rate_limited", None),
        (overloaded(), "overloaded", None),
        (server_error(), "server_error", None),
        (Failure(503, b"", {"Retry-After": "3"}), "overloaded", 3.0),
        (quota_used_up(), "quota", None),
        (unauthorized(), "authentication", None),
        (Failure(404, b"no such page"), "not_found", None),
        (Failure(301, b"", {"Location": "http://elsewhere/v1"}), "bad_request", None),
        (malformed(), "malformed_response", None),
        (Failure(200, b""), "malformed_response", None),
        (Failure(200, {"choices": []}), "malformed_response", None),
        (Failure(200, {"object": "error", "message": "x", "error": {"message": "x"}}), "server_error", None),
        (Failure(200, b"\x1f\x8b", {"Content-Encoding": "gzip"}), "malformed_response", None),
        (Drop(), "connection", None),
        (kernel(drop_after=2), "connection", None),
        (kernel(drop_after=2, clean_drop=True), "connection", None),
        (kernel(drop_after=99, clean_drop=True), "connection", None),
        (kernel(finish="abort"), "server_error", None),
        (Raw((b"data: {not json\n\n",)), "malformed_response", None),
        (Raw((b'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n',)), "overloaded", None),
        (Raw((b"data: [DONE]\n\n",)), "connection", None),
        (Raw((b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}',)), "connection", None),
        (Raw(()), "connection", None),
    ],
)
def test_the_faults_of_a_server(step, kind, retry_after_s):
    error = refused(step)
    assert (error.kind, error.retry_after_s) == (kind, retry_after_s)
    assert str(error).startswith("local/model at http://127.0.0.1:")


@pytest.mark.parametrize("step", [kernel(drop_after=1), Drop(), malformed()])
def test_half_a_body_is_no_answer(step):
    assert refused(step, stream=False).kind in ("connection", "malformed_response")


@BOTH_WAYS
def test_what_ended_otherwise_is_still_an_answer(stream):
    reply, _ = asked(cut_off(), stream=stream)
    assert (reply.ended, reply.finish_reason) == ("output_limit", "length")
    reply, _ = asked(Answer("I cannot", finish="content_filter"), stream=stream)
    assert (reply.ended, reply.text) == ("filtered", "I cannot")
    blocked = Failure(400, {"error": {"message": "The prompt triggers our policy", "code": "content_filter"}})
    reply, _ = asked(blocked, stream=stream)
    assert (reply.ended, reply.text, reply.cost_usd, reply.cost_source) == ("filtered", "", None, "unknown")


def test_lines_of_a_stream_end_only_where_they_should():
    chunks = (
        b": a comment\r\n\r\n",
        'data: {"choices": [{"delta": {"content": "a\u2028b\x85c"}}]}\r\n'.encode(),
        b'\r\ndata:{"choices": [{"delta": {"content": "\xc3',
        b'\xa9"}}]}\n\nevent: x\nid: 3\n',
        b'data: {"choices": [{"delta": {}, "finish_reason": "stop"}]}\n\n',
    )
    reply, _ = asked(Raw(chunks))
    assert reply.text == "a\u2028b\x85cé"
    assert reply.usage == Usage()
    assert reply.cost_source == "unknown"


def test_a_server_may_answer_whole_where_a_stream_was_asked_for():
    step = Failure(200, {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]})
    assert asked(step)[0].text == "whole"


def test_a_slow_stream_is_waited_for():
    reply, _ = asked(kernel(gap_s=0.15), between_bytes_timeout_s=2.0)
    assert reply.latency_s > 0.6
    assert reply.ended == "stop"


@pytest.mark.parametrize(
    ("step", "fields", "message"),
    [
        (Hang(), {"first_byte_timeout_s": 0.2}, r"expected the first byte within 0\.2 s"),
        (kernel(gap_s=1.0), {"first_byte_timeout_s": 5.0, "between_bytes_timeout_s": 0.2}, r"more of the answer after"),
        (kernel(gap_s=0.3), {"timeout_s": 0.5}, r"whole answer within 0\.5 s"),
        (kernel(delay_s=5), {"stream": False, "timeout_s": 0.3}, r"within 0\.3 s"),
    ],
)
def test_each_limit_of_time(step, fields, message):
    started = time.monotonic()
    with LlmServer(step) as server:
        found = client(openai_entry(server.url, **({"first_byte_timeout_s": 0.6} | fields)))
        error = refusal(found)
        found.close()
    assert error.kind == "timeout"
    assert time.monotonic() - started < 20
    assert re.search(message, str(error))


def test_a_server_that_is_not_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    error = refusal(client(openai_entry(f"http://127.0.0.1:{port}/v1")))
    assert error.kind == "connection"


def test_a_call_can_be_given_up():
    with LlmServer(Hang()) as server:
        found = client(openai_entry(server.url))
        started = time.monotonic()
        error = refusal(found, request(cancelled=lambda: time.monotonic() - started > 0.3))
        assert error.kind == CANCELLED
        assert time.monotonic() - started < 20
        found.close()


def test_closing_ends_the_calls_that_run():
    with LlmServer(Hang()) as server:
        found = client(openai_entry(server.url))
        errors: list[ModelError] = []
        thread = threading.Thread(target=lambda: errors.append(refusal(found)))
        thread.start()
        time.sleep(0.3)
        found.close()
        thread.join(10)
        found.close()
    assert [error.kind for error in errors] == [CANCELLED]


def test_many_conversations_at_once():
    together = threading.Barrier(24)

    def script(seen: Any) -> Step:
        together.wait(20)  # nobody is answered before all have asked
        return Answer(text=f"to {seen.messages[-1][1]}")

    with LlmServer(script) as server:
        found = client(openai_entry(server.url))
        questions = [
            request(Message(role="assistant", content="a"), Message(role="user", content=str(i))) for i in range(24)
        ]
        with ThreadPoolExecutor(24) as pool:
            replies = list(pool.map(found.complete, questions))
        found.close()
    assert [reply.text for reply in replies] == [f"to {i}" for i in range(24)]


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, caplog):
    monkeypatch.setenv("LOCAL_KEY", KEY)
    caplog.set_level(0)
    with LlmServer([kernel(), unauthorized(KEY), Failure(500, f"Authorization: Bearer {KEY}".encode())]) as server:
        found = client(openai_entry(server.url, api_key_env="LOCAL_KEY"))
        reply = found.complete(request())
        errors = [refusal(found), refusal(found)]
        found.close()
    assert {seen.key for seen in server.seen} == {KEY}
    shown = f"{found!r} {vars(found)} {found.settings()} {reply!r} {[str(error) for error in errors]} {caplog.text}"
    assert KEY not in shown
    assert [error.kind for error in errors] == ["authentication", "server_error"]


def test_a_missing_key_is_said_before_any_call(monkeypatch):
    monkeypatch.delenv("LOCAL_KEY", raising=False)
    with pytest.raises(InputError, match=r"LOCAL_KEY"):
        client(openai_entry("http://127.0.0.1:1/v1", api_key_env="LOCAL_KEY"))


def test_a_proxy_that_cannot_be_used_is_said(monkeypatch):
    monkeypatch.setenv("ALL_PROXY", "nonsense://host")
    error = refusal(client(openai_entry("http://127.0.0.1:1/v1")))
    assert error.kind == "unavailable"
    assert "as the environment says" in str(error)


def test_a_long_error_is_cut():
    error = refused(Failure(400, {"error": {"message": "the request was: " + "word " * 10_000}}))
    assert error.kind == "bad_request"
    assert len(str(error)) < 800
