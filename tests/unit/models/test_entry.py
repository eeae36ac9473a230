"""One model's entry: what it may say, and what it may not."""

from typing import Any

import pytest
from pydantic import ValidationError

from ptxbench.models.entry import EXCHANGE_TIMEOUT_S, ModelEntry

LITELLM: dict[str, Any] = {"name": "m", "provider": "litellm", "model": "openai/gpt"}


def test_only_what_is_set_is_sent():
    assert ModelEntry(**LITELLM).parameters() == {}
    entry = ModelEntry(
        **LITELLM,
        max_output_tokens=1000,
        top_k=20,
        temperature=0.0,
        thinking={"reasoning_effort": "high"},
        extra={"seed": 7},
    )
    expected = {"temperature": 0.0, "top_k": 20, "max_tokens": 1000, "reasoning_effort": "high", "seed": 7}
    assert entry.parameters() == expected
    assert entry.parameters("max_completion_tokens")["max_completion_tokens"] == 1000


@pytest.mark.parametrize(
    ("fields", "place", "expected"),
    [
        ({"provider": "openai", "model": "m"}, ("api_base",), "a value, since the provider is openai"),
        ({"provider": "litellm"}, ("model",), "a value, since the provider is litellm"),
        ({"provider": "command"}, ("command",), "a value"),
        ({"provider": "exchange"}, ("folder",), "a value"),
        (LITELLM | {"folder": "x"}, ("folder",), "no value, since the provider is litellm"),
        ({"provider": "command", "command": ("a",), "temperature": 0.5}, ("temperature",), "no way to pass it on"),
        ({"provider": "exchange", "folder": "x", "extra": {"seed": 1}}, ("extra",), "no way to pass it on"),
        (LITELLM | {"extra": {"messages": []}}, ("extra", "messages"), "not ours to set"),
        (LITELLM | {"extra": {"drop_params": True}}, ("extra", "drop_params"), "not ours to set"),
        (
            LITELLM | {"extra": {"max_tokens": 5}, "max_output_tokens": 5},
            ("extra", "max_tokens"),
            "each parameter once",
        ),
        (LITELLM | {"top_p": 0.9, "thinking": {"top_p": 1}}, ("thinking", "top_p"), "each parameter once"),
        (LITELLM | {"extra": {"a": 1}, "thinking": {"a": 2}}, ("extra", "a"), "each parameter once"),
        (
            LITELLM | {"extra": {"extra_headers": {"X-Api-Key": "s3cret"}}},
            ("extra", "extra_headers", "X-Api-Key"),
            "no cred",
        ),
    ],
)
def test_refuses_what_does_not_fit(fields, place, expected):
    with pytest.raises(ValidationError) as caught:
        ModelEntry.model_validate({"name": "m"} | fields)
    context = caught.value.errors()[0]["ctx"]
    assert context["field"] == place
    assert expected in context["expected"]
    assert "s3cret" not in context["found"]


@pytest.mark.parametrize(
    "url",
    [
        "http://me:s3cret@host/v1",
        "http://s3cret@host/v1",
        "https://host/v1?key=s3cret",
        "http://h/v1#s3cret",
        "ftp://s3cret",
    ],
)
def test_a_url_holds_no_credential(url):
    with pytest.raises(ValidationError) as caught:
        ModelEntry.model_validate({"name": "m", "provider": "openai", "model": "m", "api_base": url})
    context = caught.value.errors()[0]["ctx"]
    assert "s3cret" not in f"{context['expected']}{context['found']}"


def test_a_url_loses_its_last_slash():
    entry = ModelEntry(name="m", provider="openai", model="m", api_base="http://127.0.0.1:8000/v1/")
    assert entry.api_base == "http://127.0.0.1:8000/v1"


def test_an_exchange_waits_long_unless_told_otherwise():
    fields: dict[str, Any] = {"name": "m", "provider": "exchange", "folder": "x"}
    assert ModelEntry.model_validate(fields).timeout_s == EXCHANGE_TIMEOUT_S
    assert ModelEntry.model_validate(fields | {"timeout_s": 5.0}).timeout_s == 5.0
    assert ModelEntry.model_validate(LITELLM).timeout_s == 3600


@pytest.mark.parametrize(
    "value", ["sk-ant-s3cret0123456789", "hf_s3cretAbCdEfGhIjKlMnOp", "a94s3cret8fe5ccb19ba61c4c0873", "s3cret key"]
)
def test_a_key_in_place_of_its_variable_is_not_quoted(value):
    with pytest.raises(ValidationError) as caught:
        ModelEntry.model_validate(LITELLM | {"api_key_env": value})
    context = caught.value.errors()[0]["ctx"]
    assert "the name of an environment variable" in context["expected"]
    assert "s3cret" not in f"{context['expected']}{context['found']}"


def test_a_command_holds_no_credential():
    fields = {"name": "m", "provider": "command"}
    with pytest.raises(ValidationError) as caught:
        ModelEntry.model_validate(fields | {"command": ("agent", "--api-key=s3cretvalue")})
    context = caught.value.errors()[0]["ctx"]
    assert context["field"] == ("command", 1)
    assert "no credential in a command" in context["expected"]
    assert "s3cret" not in f"{context['expected']}{context['found']}"
    assert ModelEntry.model_validate(fields | {"command": ("agent", "--api-key-env=MY_KEY")}).command is not None
