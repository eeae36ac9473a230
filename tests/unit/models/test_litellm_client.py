"""``litellm``, the real package against a real server on this machine, as OpenAI's provider and as Anthropic's."""

import time
from typing import Any

import pytest

from ptxbench.errors import InputError
from ptxbench.models.catalog import load_catalog
from ptxbench.models.client import CANCELLED, ModelClient
from ptxbench.models.entry import ModelEntry, Prices
from ptxbench.records import Reply, Usage
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
from tests.unit.models.parts import KEY, SYSTEM, USER, client, entry, refusal, request

PROVIDERS = pytest.mark.parametrize("provider", ["openai", "anthropic"])
BOTH_WAYS = pytest.mark.parametrize("stream", [True, False])


def litellm_entry(server: LlmServer, provider: str, **fields: Any) -> ModelEntry:
    base, model = (server.url, "openai/gpt-x") if provider == "openai" else (server.root, "anthropic/claude-opus-5-5")
    return entry("litellm", **({"model": model, "api_base": base, "api_key_env": "LITELLM_TEST_KEY"} | fields))


pytestmark = pytest.mark.usefixtures("litellm_key", "litellm_loop")


def asked(script: Script, provider: str, **fields: Any) -> tuple[Reply, LlmServer]:
    with LlmServer(script) as server:
        found = client(litellm_entry(server, provider, **fields))
        reply = found.complete(request())
        found.close()
    return reply, server


@PROVIDERS
@BOTH_WAYS
def test_an_answer_with_all_that_belongs_to_it(provider, stream):
    step = Answer("Ünïcode\n```cuda\n// kernel\n```\n", "thinking", cached_tokens=900, output_tokens=200, pieces=5)
    reply, server = asked(step, provider, stream=stream, prices=Prices(input=1, cached_input=0.1, output=10))
    assert (reply.text, reply.reasoning) == (step.text, "thinking")
    assert (reply.ended, reply.finish_reason) == ("stop", "stop")
    assert reply.usage.model_copy(update={"reasoning_tokens": None}) == Usage(
        input_tokens=1000, cached_input_tokens=900, output_tokens=200
    )
    assert reply.cost_usd == pytest.approx((100 * 1 + 900 * 0.1 + 200 * 10) / 1e6)
    assert reply.cost_source == "models_file"
    assert reply.model == ("gpt-x" if provider == "openai" else "claude-opus-5-5")
    assert server.seen[0].messages == [("system", SYSTEM.content), ("user", USER.content)]
    assert server.seen[0].key == KEY
    assert len(server.seen) == 1


@PROVIDERS
def test_nothing_is_sent_that_the_entry_does_not_say(provider):
    _, server = asked(kernel(), provider, stream=False)
    # Anthropic wants a limit; litellm knows the model's own.
    assert set(server.seen[0].body) <= {"model", "messages", "system", "max_tokens"}
    assert ("max_tokens" in server.seen[0].body) == (provider == "anthropic")


def test_settings_reach_the_provider():
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "max_output_tokens": 4321,
        "extra": {"seed": 3, "custom_thing": {"a": 1}},
    }
    reply, server = asked(kernel(), "openai", **fields)
    body = server.seen[0].body
    assert (body["temperature"], body["seed"], body["custom_thing"]) == (0.5, 3, {"a": 1})
    assert body.get("max_tokens", body.get("max_completion_tokens")) == 4321
    assert reply.ended == "stop"


def test_our_claude_entries_think_and_cache():
    ours = load_catalog().entry("claude-opus-4.8")
    with LlmServer(kernel()) as server:
        fields = {"api_base": server.root, "api_key_env": "LITELLM_TEST_KEY"}
        found = client(ours.model_copy(update=fields))
        reply = found.complete(request())
        settings = found.settings()
        found.close()
    body = server.seen[0].body
    assert body["thinking"] == {"type": "adaptive"}
    assert body["max_tokens"] == 128_000
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][-1]["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert settings["thinking"] == {"type": "adaptive"}
    assert reply.cost_usd == pytest.approx((1000 * 5 + 100 * 25) / 1e6)


def test_a_setting_that_the_provider_does_not_have_is_refused_and_not_dropped():
    with LlmServer(kernel()) as server:
        found = client(litellm_entry(server, "anthropic", temperature=0.5))
        error = refusal(found)
        found.close()
    assert error.kind == "bad_request"
    assert "temperature" in str(error)
    assert server.seen == []


def test_the_price_map_stands_in():
    step = kernel(input_tokens=1_000_000, cached_tokens=500_000, output_tokens=100_000)
    reply, _ = asked(step, "anthropic")
    assert reply.cost_source == "price_map"
    assert reply.cost_usd == pytest.approx(0.5 * 4 + 0.5 * 0.2 + 0.1 * 20)
    reply, _ = asked(step, "openai")
    assert (reply.cost_usd, reply.cost_source) == (None, "unknown")


def test_tokens_that_were_written_to_the_cache_have_their_price():
    step = kernel(extra_usage={"input_tokens": 200_000, "cache_creation_input_tokens": 800_000}, output_tokens=100_000)
    reply, _ = asked(step, "anthropic", prices=Prices(input=4, cached_input=0.2, cache_write=5, output=20))
    assert reply.usage.input_tokens == 1_000_000
    assert reply.cost_usd == pytest.approx(0.2 * 4 + 0.8 * 5 + 0.1 * 20)


@PROVIDERS
@BOTH_WAYS
@pytest.mark.parametrize("style", CONTEXT_STYLES)
def test_a_full_context(style, stream, provider):
    with LlmServer(context_length(style)) as server:
        found = client(litellm_entry(server, provider, stream=stream))
        assert refusal(found).kind == "context_exhausted"
        found.close()
    assert len(server.seen) == 1


FAULTS: list[tuple[Step, str, float | None]] = [
    (rate_limited("2"), "rate_limited", 2.0),
    (rate_limited(None, retry_after_ms="1500"), "rate_limited", 1.5),
    (overloaded(), "overloaded", None),
    (server_error(), "server_error", None),
    (Failure(503, b"", {"Retry-After": "3"}), "overloaded", 3.0),
    (quota_used_up(), "quota", None),
    (unauthorized(KEY), "authentication", None),
    (Failure(404, {"error": {"message": "no such model", "type": "not_found_error"}}), "not_found", None),
    (Failure(400, {"error": {"message": "bad", "type": "invalid_request_error"}}), "bad_request", None),
    (Drop(), "connection", None),
    (kernel(drop_after=2), "connection", None),
]


@PROVIDERS
@BOTH_WAYS
@pytest.mark.parametrize(("step", "kind", "retry_after_s"), FAULTS)
def test_the_faults_of_a_provider(step, kind, retry_after_s, stream, provider):
    with LlmServer(step) as server:
        found = client(litellm_entry(server, provider, stream=stream))
        error = refusal(found)
        found.close()
    assert (error.kind, error.retry_after_s) == (kind, retry_after_s)
    assert len(server.seen) == 1, "litellm tried again by itself"
    assert KEY not in str(error)
    assert error.__cause__ is None
    assert error.__suppress_context__


@PROVIDERS
@pytest.mark.parametrize(
    "step", [kernel(drop_after=2, clean_drop=True), kernel(drop_after=99, clean_drop=True), malformed(), Raw(())]
)
def test_what_is_not_whole_is_no_answer(step, provider):
    with LlmServer(step) as server:
        found = client(litellm_entry(server, provider))
        assert refusal(found).kind in ("connection", "malformed_response")
        found.close()


@PROVIDERS
@BOTH_WAYS
def test_what_ended_otherwise_is_still_an_answer(provider, stream):
    reply, _ = asked(cut_off(), provider, stream=stream)
    assert (reply.ended, reply.text) == ("output_limit", cut_off().text)
    reply, _ = asked(Answer("I cannot", finish="content_filter"), provider, stream=stream)
    assert (reply.ended, reply.text) == ("filtered", "I cannot")


def test_each_limit_of_time():
    cases: list[tuple[Step, dict[str, Any]]] = [
        (Hang(), {"first_byte_timeout_s": 0.3}),
        (kernel(gap_s=1.0), {"between_bytes_timeout_s": 0.3}),
        (kernel(delay_s=9), {"stream": False, "timeout_s": 0.5}),
    ]
    for step, fields in cases:
        started = time.monotonic()
        with LlmServer(step) as server:
            found = client(litellm_entry(server, "openai", **fields))
            assert refusal(found).kind == "timeout"
            found.close()
        assert time.monotonic() - started < 20


def test_a_call_can_be_given_up():
    with LlmServer(Hang()) as server:
        found = client(litellm_entry(server, "anthropic"))
        started = time.monotonic()
        error = refusal(found, request(cancelled=lambda: time.monotonic() - started > 0.3))
        assert error.kind == CANCELLED
        assert time.monotonic() - started < 20
        found.close()
        assert refusal(found).kind == CANCELLED


def shown(of: ModelClient) -> str:
    return f"{of!r} {vars(of)} {of.settings()}"


def test_the_key_is_shown_nowhere(caplog, capfd):
    caplog.set_level(0)
    with LlmServer([kernel(), unauthorized(KEY)]) as server:
        found = client(litellm_entry(server, "openai"))
        reply = found.complete(request())
        error = refusal(found)
        text = shown(found)
        found.close()
    captured = capfd.readouterr()
    assert KEY not in f"{text} {reply!r} {error} {caplog.text} {captured.out} {captured.err}"


def test_a_missing_key_is_said_before_any_call(monkeypatch):
    monkeypatch.delenv("LITELLM_TEST_KEY")
    with pytest.raises(InputError, match=r"LITELLM_TEST_KEY"):
        client(entry("litellm", model="openai/x", api_key_env="LITELLM_TEST_KEY"))


def test_litellm_knows_which_key_a_provider_needs(monkeypatch):
    monkeypatch.delenv("MISTRAL_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"environment variable MISTRAL_API_KEY; found none"):
        client(entry("litellm", model="mistral/mistral-large-4"))
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    client(entry("litellm", model="mistral/mistral-large-4")).close()
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(InputError, match=r"environment variable GOOGLE_API_KEY or GEMINI_API_KEY; found none"):
        client(entry("litellm", model="gemini/gemini-4-argon"))
    for model in ("ollama/llama3", "bedrock/anthropic.claude-opus-4-8", "hosted_vllm/x", "azure/x"):
        client(entry("litellm", model=model)).close()
    with pytest.raises(InputError, match=r"a provider that litellm knows, found 'nonsense/x'"):
        client(entry("litellm", model="nonsense/x"))
