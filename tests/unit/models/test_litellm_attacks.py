"""``litellm`` against servers that mean harm."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ptxbench.models import litellm_guard, litellm_library
from ptxbench.models.client import ModelError
from ptxbench.models.entry import Prices
from ptxbench.records import Reply, Usage
from tests.support.llm_script import Answer, Failure, Raw, Step, kernel
from tests.support.llm_server import LlmServer
from tests.unit.models.parts import KEY, client, entry, request

PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic", "hosted_vllm"])
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


pytestmark = pytest.mark.usefixtures("litellm_key", "litellm_loop")


@pytest.fixture
def other_host() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A server under another host name, and the headers that it was sent."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(dict(self.headers.items()))
            self.send_response(500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST  # noqa: N815 - its name there

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}/v1/messages", seen
    server.shutdown()
    server.server_close()
    thread.join(5)


def asked(step: Step, provider: str = "openai", **fields: Any) -> Reply | ModelError:
    with LlmServer(step) as server:
        base = server.root if provider == "anthropic" else server.url
        own = {"model": f"{provider}/m", "api_base": base, "api_key_env": "LITELLM_TEST_KEY", "timeout_s": 60.0}
        found = client(entry("litellm", **(own | fields)))
        try:
            return found.complete(request())
        except ModelError as error:
            return error
        finally:
            found.close()


def answered(step: Step, provider: str = "openai", **fields: Any) -> Reply:
    found = asked(step, provider, **fields)
    assert isinstance(found, Reply), found
    return found


def refused(step: Step, provider: str = "openai", **fields: Any) -> ModelError:
    found = asked(step, provider, **fields)
    assert isinstance(found, ModelError), found
    return found


def streamed(*pieces: dict[str, Any]) -> Raw:
    frame = {"id": "a", "object": "chat.completion.chunk", "model": "m"}
    return Raw(tuple(f"data: {json.dumps(frame | piece)}\n\n".encode() for piece in pieces))


def body(**changes: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "text"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage} | changes


@PROVIDERS
@BOTH_WAYS
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_takes_no_key_to_another_host(other_host, status, stream, provider):
    location, seen = other_host
    error = refused(Failure(status, {}, {"Location": location}), provider, stream=stream)
    assert seen == []
    assert error.kind == "bad_request"
    assert f"HTTP {status}: the server redirects; name its final URL as api_base" in str(error)


@PROVIDERS
def test_a_repeated_piece_is_an_answer(provider):
    text = "0.0f, " * 300
    assert answered(Answer(text=text, pieces=300), provider).text == text


@PROVIDERS
@BOTH_WAYS
def test_an_answer_without_end_is_bounded(monkeypatch, stream, provider):
    monkeypatch.setattr(litellm_guard, "MAX_RESPONSE_BYTES", 300_000)
    error = refused(Answer(text="word " * 100_000, pieces=100), provider, stream=stream)
    assert error.kind == "malformed_response"
    assert "expected an answer of at most 300000 bytes, found more" in str(error)


@PROVIDERS
def test_a_line_without_end_is_bounded(monkeypatch, provider):
    monkeypatch.setattr(litellm_guard, "MAX_LINE_BYTES", 100_000)
    error = refused(Raw(tuple(b"x" * 9_000 for _ in range(12))), provider)
    assert error.kind == "malformed_response"
    assert "expected lines of at most 100000 bytes" in str(error)


@PROVIDERS
@BOTH_WAYS
def test_a_body_that_is_compressed_is_not_unpacked(stream, provider):
    twice = gzip.compress(gzip.compress(b"x" * 10_000_000))
    error = refused(Failure(200, twice, {"Content-Encoding": "gzip, gzip"}), provider, stream=stream)
    assert error.kind == "malformed_response"
    assert "expected a body that is not compressed" in str(error)
    # The status of an error says enough.
    compressed = Failure(401, twice, {"Content-Encoding": "gzip, gzip"})
    assert refused(compressed, provider, stream=stream).kind == "authentication"


@PROVIDERS
def test_no_compression_is_asked_for(provider):
    with LlmServer(kernel()) as server:
        base = server.root if provider == "anthropic" else server.url
        found = client(entry("litellm", model=f"{provider}/m", api_base=base, api_key_env="LITELLM_TEST_KEY"))
        found.complete(request())
        found.close()
    assert server.seen[0].headers["accept-encoding"] == "identity"


def test_the_clients_of_a_later_session_are_held_too(other_host):
    """With the last client go litellm's connections; those after it are new."""
    litellm_library.release_loop()
    try:
        location, seen = other_host
        for provider in ("openai", "anthropic") * 2:
            error = refused(Failure(307, {}, {"Location": location}), provider)
            assert "the server redirects" in str(error)
            assert answered(kernel(), provider).ended == "stop"
        assert seen == []
    finally:
        litellm_library.acquire_loop()


def test_of_several_choices_the_first_counts():
    pieces = [
        {"choices": [{"index": 0, "delta": {"content": "A"}}, {"index": 1, "delta": {"content": "B"}}]},
        {"choices": [{"index": 1, "delta": {"content": "B2"}}]},
        {"choices": [{"index": 0, "delta": {"content": "A2"}}]},
        {"choices": [{"index": 1, "delta": {}, "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": {"content": "A3"}, "finish_reason": "stop"}]},
    ]
    assert answered(streamed(*pieces)).text == "AA2A3"
    # Whole ones litellm numbers anew, by their place.
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for index, text in ((0, "A"), (1, "B"))
    ]
    assert answered(Failure(200, body(choices=choices)), stream=False).text == "A"


def test_counts_that_did_not_come_are_not_told():
    """litellm would count with a tokenizer of its own."""
    pieces = [{"choices": [{"index": 0, "delta": {"content": "some words"}, "finish_reason": "stop"}]}]
    priced = Prices(input=1, output=1)
    reply = answered(streamed(*pieces), prices=priced)
    assert (reply.text, reply.usage, reply.cost_usd) == ("some words", Usage(), None)
    told = {"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}
    reply = answered(streamed(*pieces, told), prices=priced)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (10, 5)
    whole = body()
    del whole["usage"]
    assert answered(Failure(200, whole), stream=False, prices=priced).usage.input_tokens is None


@BOTH_WAYS
def test_no_reply_earns_money(stream):
    step = kernel(input_tokens=-1_000_000, output_tokens=-5)
    reply = answered(step, stream=stream, prices=Prices(input=1, output=1))
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.cost_usd) == (None, None, None)


@PROVIDERS
@BOTH_WAYS
def test_a_key_that_a_server_echoes_is_kept_nowhere(stream, provider):
    reply = answered(Answer(text=f"You sent {KEY}", reasoning=KEY, model=KEY), provider, stream=stream)
    assert KEY not in repr(reply)
    assert reply.text == "You sent [hidden]"


def test_a_key_that_litellm_finds_itself_is_kept_nowhere_either(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    reply = answered(Answer(text=f"You sent {KEY}"), api_key_env=None)
    assert reply.text == "You sent [hidden]"


@BOTH_WAYS
@pytest.mark.parametrize("field", ["model", "id"])
def test_half_a_surrogate_pair_loses_no_reply(stream, field):
    step: Step = Failure(200, body(**{field: "\ud800"}))
    if stream:
        piece = {"choices": [{"index": 0, "delta": {"content": "text"}, "finish_reason": "stop"}], field: "\ud800"}
        step = streamed(piece)
    found = asked(step, stream=stream)
    # Whether litellm takes it is its own affair; what we make of it can be stored.
    if isinstance(found, Reply):
        assert Reply.model_validate_json(found.model_dump_json()) == found
    else:
        assert found.kind == "malformed_response"
        str(found).encode()
